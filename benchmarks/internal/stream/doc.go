// Package stream reads memory once, as fast as the machine can: the least time of whatever reads it.
package stream
