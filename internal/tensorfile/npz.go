package tensorfile

import (
	"bytes"
	"compress/flate"
	"errors"
	"hash/crc32"
	"io"
	"strings"
)

// maxDeflate bounds how much longer than its compressed form a member can be.
const maxDeflate = 1032

// openNPZ opens a member of a zip archive.
func openNPZ(mem *memory, path, name string) (*Tensor, error) {
	members, err := parseZip(mem.data, path)
	if err != nil {
		return nil, err
	}
	member, err := findMember(members, path, name)
	if err != nil {
		return nil, err
	}
	name = strings.TrimSuffix(member.name, ".npy")
	source := path + ":" + label(name)
	if member.flags&flagEncrypted != 0 {
		return nil, fail(source, "member", "found it encrypted, expected a readable one")
	}
	switch member.method {
	case methodStored:
		if member.packed != member.size {
			return nil, fail(source, "member", "found %d stored bytes, expected the %d of the array", member.packed, member.size)
		}
		if err := member.checkSum(crc32.ChecksumIEEE(member.data), source); err != nil {
			return nil, err
		}
		return parseNPY(member.data, source, name, mem)
	case methodDeflated:
		if member.size/maxDeflate > member.packed {
			return nil, fail(source, "member", "found a size of %d from %d compressed bytes, expected at most %d times as much", member.size, member.packed, maxDeflate)
		}
		t, err := member.inflate(source, name)
		if err != nil {
			return nil, err
		}
		return t, mem.close()
	}
	return nil, fail(source, "member", "found compression method %d, expected 0 (stored) or 8 (deflated)", member.method)
}

// findMember returns the member with the array of this name. Its file in the
// archive has the name with ".npy" after it.
func findMember(members []zipMember, path, name string) (*zipMember, error) {
	var found []*zipMember
	var names []string
	for i := range members {
		m := &members[i]
		short, ok := strings.CutSuffix(m.name, ".npy")
		if !ok {
			continue
		}
		names = append(names, short)
		if name != "" && (short == name || m.name == name) {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fail(path, "name", "found %d members %s, expected one", len(found), label(name))
	case len(names) == 0 && len(members) > 0:
		return nil, fail(path, "archive", "found %s and no member that ends in .npy, expected an archive as numpy.savez writes it", label(members[0].name))
	}
	return nil, nameError(path, "name", name, names)
}

// plausible is how much longer than its compressed form a member may say that it
// is, and be believed. Numbers are not compressed that well, unless nearly all of
// them are the same.
const plausible = 8

// inflate decompresses a member into memory of the size that both the archive and
// the array state. If that is implausible the member is read once in advance,
// so that a file takes no more memory than it unpacks to.
func (m *zipMember) inflate(source, name string) (*Tensor, error) {
	r := m.open()
	prefix := make([]byte, min(m.size, uint64(maxNPYPrefix)))
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
	if m.size-uint64(at) != uint64(want) {
		return nil, fail(source, "data", "found %d bytes, expected %d (shape %v of %s)", m.size-uint64(at), want, l.shape, l.dtype)
	}
	if m.size/plausible > m.packed {
		if err := m.checkStream(source); err != nil {
			return nil, err
		}
	}
	data := make([]byte, want)
	if _, err := io.ReadFull(r, data[copy(data, prefix[at:]):]); err != nil {
		return nil, inflateError(source, err)
	}
	if err := r.end(); err != nil {
		return nil, inflateError(source, err)
	}
	sum := crc32.Update(crc32.ChecksumIEEE(prefix[:at]), crc32.IEEETable, data)
	if err := m.checkSum(sum, source); err != nil {
		return nil, err
	}
	return newTensor(source, name, l, data, &memory{})
}

// checkStream returns an error unless the member unpacks to as many bytes as it
// says.
func (m *zipMember) checkStream(source string) error {
	r := m.open()
	if _, err := io.CopyN(io.Discard, r, int64(m.size)); err != nil {
		return inflateError(source, err)
	}
	if err := r.end(); err != nil {
		return inflateError(source, err)
	}
	return nil
}

// stream is the content of a deflated member.
type stream struct {
	io.Reader
	packed *bytes.Reader
}

func (m *zipMember) open() stream {
	packed := bytes.NewReader(m.data)
	return stream{flate.NewReader(packed), packed}
}

// end returns an error unless the stream has been read to its end, and the compressed
// bytes end there too.
func (s stream) end() error {
	switch n, err := io.CopyN(io.Discard, s, 1); {
	case n != 0:
		return errLonger
	case err != io.EOF:
		return err
	case s.packed.Len() > 0:
		return errBehind
	}
	return nil
}

// checkSum compares a member's checksum with that in the archive's directory.
func (m *zipMember) checkSum(found uint32, source string) error {
	if found != m.crc {
		return fail(source, "checksum", "found %08x, expected %08x", found, m.crc)
	}
	return nil
}

var (
	errLonger = errors.New("more bytes than the archive states, expected as many")
	errBehind = errors.New("bytes behind the end of the deflate stream, expected none")
)

func inflateError(source string, err error) error {
	switch {
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	case err == errLonger || err == errBehind:
		return fail(source, "member", "found %w", err)
	}
	return fail(source, "member", "found %w, expected a deflated array", err)
}
