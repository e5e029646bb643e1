package tensorfile

import (
	"archive/zip"
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"
)

const (
	maxDeflate = 1032   // bounds the ratio of a member to its compressed form
	encrypted  = 1 << 0 // the flag of a member that a password protects

	// plausible is the largest factor between the stated and the compressed size of a member for
	// which the stated size is believed. Numbers are compressed better only if nearly all of them
	// are the same.
	plausible = 8
)

// member opens a member of a zip archive. A stored one is used in place.
func (f *File) member(name string) (*Tensor, error) {
	mem, path := f.mem, f.path
	archive, err := zip.NewReader(bytes.NewReader(mem.data), int64(len(mem.data)))
	if err != nil {
		return nil, fail(path, "archive", "found %w, expected a zip archive as numpy.savez writes it", err)
	}
	file, err := findMember(archive.File, path, name)
	if err != nil {
		return nil, err
	}
	source := path + ":" + Label(strings.TrimSuffix(file.Name, ".npy"))
	offset, err := file.DataOffset()
	if err != nil {
		return nil, fail(source, "member", "found %w, expected a zip archive as numpy.savez writes it", err)
	}
	packed, size, end := file.CompressedSize64, file.UncompressedSize64, uint64(len(mem.data))
	if offset < 0 || uint64(offset) > end || packed > end-uint64(offset) {
		return nil, fail(source, "member", "found %d bytes at offset %d, expected them to end by %d, where the file ends", packed, offset, end)
	}
	if file.Flags&encrypted != 0 {
		return nil, fail(source, "member", "found it encrypted, expected a readable one")
	}
	data := mem.data[offset:][:packed]
	switch {
	case file.Method == zip.Store && packed != size:
		return nil, fail(source, "member", "found %d stored bytes, expected the %d of the array", packed, size)
	case file.Method == zip.Store:
	case file.Method != zip.Deflate:
		return nil, fail(source, "member", "found compression method %d, expected 0 (stored) or 8 (deflated)", file.Method)
	case size > math.MaxInt || size/maxDeflate > packed:
		return nil, fail(source, "member", "found a size of %d from %d compressed bytes, expected at most %d times as much", size, packed, maxDeflate)
	default:
		mem = &memory{}
		if data, err = inflate(file); err == zip.ErrFormat {
			err = fmt.Errorf("more than the %d bytes that the archive states", size)
		}
		if err != nil {
			return nil, fail(source, "member", "found %w, expected a deflated array", err)
		}
	}
	// archive/zip takes a checksum of 0 for none.
	if found := crc32.ChecksumIEEE(data); found != file.CRC32 {
		return nil, fail(source, "checksum", "found %08x, expected %08x", found, file.CRC32)
	}
	return parseNPY(data, source, mem)
}

// findMember returns the member with the array of this name. Its file in the
// archive has the name with ".npy" after it.
func findMember(members []*zip.File, path, name string) (*zip.File, error) {
	var found []*zip.File
	var names []string
	for _, m := range members {
		short, ok := strings.CutSuffix(m.Name, ".npy")
		if !ok {
			continue
		}
		names = append(names, short)
		if name != "" && (short == name || m.Name == name) {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fail(path, "name", "found %d members %s, expected one", len(found), Label(name))
	case len(names) == 0 && len(members) > 0:
		return nil, fail(path, "archive", "found %s and no member that ends in .npy, expected an archive as numpy.savez writes it", Label(members[0].Name))
	}
	return nil, nameError(path, name, names)
}

// inflate decompresses a member into memory of the size that the archive states. If that is
// implausible the member is read once in advance, so that a file takes no more memory than
// it unpacks to.
func inflate(m *zip.File) ([]byte, error) {
	size := m.UncompressedSize64
	if size/plausible > m.CompressedSize64 {
		r, err := m.Open()
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return nil, err
		}
		r.Close()
	}
	r, err := m.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	// The end, at which the size and the checksum are checked.
	if _, err := io.CopyN(io.Discard, r, 1); err != io.EOF {
		return nil, cmp.Or(err, zip.ErrFormat)
	}
	return data, nil
}
