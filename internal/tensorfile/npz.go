package tensorfile

import (
	"archive/zip"
	"bytes"
	"hash/crc32"
	"io"
	"slices"
	"strings"
)

// maxDeflate bounds how much longer than its compressed form a member can be.
const maxDeflate = 1032

// openNPZ opens a member of a zip archive.
func openNPZ(mem *memory, path, name string) (*Tensor, error) {
	data := mem.data
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fail(path, "archive", "found %w, expected a zip archive as numpy.savez writes it", err)
	}
	const endRecord = 22 // bytes, without the archive's comment
	if at := len(data) - endRecord - len(r.Comment); at < 0 || !bytes.HasPrefix(data[at:], []byte("PK\x05\x06")) {
		return nil, fail(path, "archive", "found bytes behind its end, expected none")
	}
	member, err := findMember(r.File, path, name)
	if err != nil {
		return nil, err
	}
	name = strings.TrimSuffix(member.Name, ".npy")
	source := path + ":" + label(name)
	if err := checkMembers(r.File, path, int64(len(data))); err != nil {
		return nil, err
	}
	if member.Flags&1 != 0 {
		return nil, fail(source, "member", "found it encrypted, expected a readable one")
	}
	size := member.UncompressedSize64
	switch member.Method {
	case zip.Store:
		if member.CompressedSize64 != size {
			return nil, fail(source, "member", "found %d stored bytes, expected the %d of the array", member.CompressedSize64, size)
		}
		start, _ := member.DataOffset() // checkMembers has seen that it is valid
		file := data[start:][:size]
		if err := checkSum(crc32.ChecksumIEEE(file), member, source); err != nil {
			return nil, err
		}
		return parseNPY(file, source, name, mem)
	case zip.Deflate:
		if size/maxDeflate > member.CompressedSize64 {
			return nil, fail(source, "member", "found a size of %d from %d compressed bytes, expected at most %d times as much", size, member.CompressedSize64, maxDeflate)
		}
		t, err := inflate(member, source, name)
		if err != nil {
			return nil, err
		}
		return t, mem.close()
	}
	return nil, fail(source, "member", "found compression method %d, expected 0 (stored) or 8 (deflated)", member.Method)
}

// findMember returns the member with the array of this name. Its file in the
// archive has the name with ".npy" after it.
func findMember(files []*zip.File, path, name string) (*zip.File, error) {
	var found []*zip.File
	var names []string
	for _, f := range files {
		short, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			continue
		}
		names = append(names, short)
		if name != "" && (short == name || f.Name == name) {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fail(path, "name", "found %d members %s, expected one", len(found), label(name))
	case len(names) == 0 && len(files) > 0:
		return nil, fail(path, "archive", "found %s and no member that ends in .npy, expected an archive as numpy.savez writes it", label(files[0].Name))
	}
	return nil, nameError(path, "name", name, names)
}

// checkMembers refuses an archive whose members overlap or leave the file.
func checkMembers(files []*zip.File, path string, size int64) error {
	type extent struct {
		start, end int64
		name       string
	}
	extents := make([]extent, 0, len(files))
	for _, f := range files {
		start, err := f.DataOffset()
		if err != nil {
			return fail(path+":"+label(f.Name), "member", "found %w, expected a local header", err)
		}
		if start < 0 || start > size || f.CompressedSize64 > uint64(size-start) {
			return fail(path+":"+label(f.Name), "member", "found %d bytes at offset %d, expected them within the file's %d", f.CompressedSize64, start, size)
		}
		extents = append(extents, extent{start, start + int64(f.CompressedSize64), f.Name})
	}
	slices.SortFunc(extents, func(a, b extent) int {
		if a.start != b.start {
			return int(min(1, max(-1, a.start-b.start)))
		}
		return int(min(1, max(-1, a.end-b.end)))
	})
	for i := 1; i < len(extents); i++ {
		if extents[i].start < extents[i-1].end {
			return fail(path+":"+label(extents[i].name), "member", "found it at offset %d, expected at least %d, where %s ends", extents[i].start, extents[i-1].end, label(extents[i-1].name))
		}
	}
	return nil
}

// inflate decompresses a member. The memory for its data grows with what has
// been read, up to the size that both the archive and the array state.
func inflate(member *zip.File, source, name string) (*Tensor, error) {
	r, err := member.Open()
	if err != nil {
		return nil, fail(source, "member", "found %w, expected a deflated array", err)
	}
	defer r.Close()
	size := member.UncompressedSize64
	prefix := make([]byte, min(size, uint64(maxNPYPrefix)))
	if _, err := io.ReadFull(r, prefix); err != nil {
		return nil, inflateError(source, err)
	}
	l, at, err := parseNPYHeader(prefix, source)
	if err != nil {
		return nil, err
	}
	want, err := l.bytes()
	if err != nil {
		return nil, fail(source, "shape", "%w", err)
	}
	if size-uint64(at) != uint64(want) {
		return nil, fail(source, "data", "found %d bytes, expected %d (shape %v of %s)", size-uint64(at), want, l.shape, l.dtype)
	}
	data := bytes.Clone(prefix[at:])
	for len(data) < want {
		data = slices.Grow(data, min(want-len(data), max(len(data), 1<<20)))
		n, err := io.ReadFull(r, data[len(data):min(cap(data), want)])
		data = data[:len(data)+n]
		if err != nil {
			return nil, inflateError(source, err)
		}
	}
	// archive/zip compares the checksum at the end of the member, but takes one
	// of 0 for none.
	if n, err := io.CopyN(io.Discard, r, 1); n != 0 || err != io.EOF {
		return nil, inflateError(source, err)
	}
	sum := crc32.Update(crc32.ChecksumIEEE(prefix[:at]), crc32.IEEETable, data)
	if err := checkSum(sum, member, source); err != nil {
		return nil, err
	}
	return newTensor(source, name, l, data, &memory{})
}

// checkSum compares a member's checksum with that in the archive's directory.
func checkSum(found uint32, member *zip.File, source string) error {
	if found != member.CRC32 {
		return fail(source, "checksum", "found %08x, expected %08x", found, member.CRC32)
	}
	return nil
}

func inflateError(source string, err error) error {
	if err == nil {
		return fail(source, "member", "found more bytes than the archive states, expected as many")
	}
	return fail(source, "member", "found %w, expected a deflated array", err)
}
