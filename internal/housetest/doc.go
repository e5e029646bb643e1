// Package housetest holds the tests of the repository as a whole: that the floors of
// ARCHITECTURE.md hold, and that what the documents name exists.
package housetest
