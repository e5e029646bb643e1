// Package stream reads memory once, as fast as the machine can: a lower bound for every program
// that reads it.
package stream
