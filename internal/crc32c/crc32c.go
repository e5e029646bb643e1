// Package crc32c is the checksum of the files that the library writes: the
// CRC-32 of Castagnoli's polynomial (RFC 3720), which the CPU computes.
package crc32c

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the checksum of b.
func Sum(b []byte) uint32 { return crc32.Checksum(b, table) }

// Update returns the checksum of some bytes followed by b; crc is the checksum of the first bytes.
func Update(crc uint32, b []byte) uint32 { return crc32.Update(crc, table, b) }
