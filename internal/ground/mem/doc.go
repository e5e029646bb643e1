// Package mem has memory: large tables on large pages, files that are mapped, the faults of files
// that were cut off meanwhile, and slices that are used again.
package mem
