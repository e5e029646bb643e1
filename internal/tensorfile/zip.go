package tensorfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// The records of a zip archive: how each begins, and its bytes without the parts
// whose length it states. APPNOTE.TXT of PKWARE, sections 4.3 and 4.5.
const (
	localMagic, localSize         = "PK\x03\x04", 30
	descriptorMagic               = "PK\x07\x08"
	entryMagic, entrySize         = "PK\x01\x02", 46
	endMagic, endSize             = "PK\x05\x06", 22
	zip64EndMagic, zip64EndSize   = "PK\x06\x06", 56
	locatorMagic, zip64LocateSize = "PK\x06\x07", 20

	zip64Extra = 1 // the identifier of the extra field with sizes of 64 bits

	flagEncrypted  = 1 << 0
	flagDescriptor = 1 << 3 // the checksum and the sizes stand behind the data

	methodStored   = 0
	methodDeflated = 8
)

// zipMember is a file in an archive.
type zipMember struct {
	name          string
	flags, method uint16
	crc           uint32
	packed, size  uint64 // bytes in the archive and unpacked
	header        uint64 // offset of the local header
	data          []byte // packed bytes of the archive
}

// parseZip returns the members of an archive, in the order of its directory.
//
// The file must be local headers with their data, the directory and the end
// record, one behind the other from the first byte to the last: an archive is
// refused that has gaps or overlaps, or if two of its records say different
// things. archive/zip, which reads what it can of any file, does not see that.
func parseZip(file []byte, path string) ([]zipMember, error) {
	directory, at, count, err := findDirectory(file)
	if err != nil {
		return nil, fail(path, "archive", "%w", err)
	}
	members, err := parseDirectory(directory, count)
	if err != nil {
		return nil, fail(path, "directory", "%w", err)
	}
	order := make([]*zipMember, len(members))
	for i := range members {
		order[i] = &members[i]
	}
	slices.SortStableFunc(order, func(a, b *zipMember) int { return cmp.Compare(a.header, b.header) })
	where, place := uint64(0), "where the file begins"
	for i, m := range order {
		next := uint64(at)
		if i+1 < len(order) {
			next = min(next, order[i+1].header)
		}
		if m.header != where {
			err = fmt.Errorf("found its local header at offset %d, expected it at %d, %s", m.header, where, place)
		} else {
			where, err = m.readLocal(file[:at], next)
		}
		if err != nil {
			return nil, fail(path+":"+label(m.name), "member", "%w", err)
		}
		place = "where " + label(m.name) + " ends"
	}
	if where != uint64(at) {
		return nil, fail(path, "directory", "found it at offset %d, expected it at %d, %s", at, where, place)
	}
	return members, nil
}

// findDirectory reads the end record, and returns the directory, its offset and
// how many members it has.
func findDirectory(file []byte) (directory []byte, at int, count uint64, err error) {
	le := binary.LittleEndian
	end := -1
	missing := fmt.Errorf("found no end record, expected a zip archive as numpy.savez writes it")
	first := max(0, len(file)-endSize-math.MaxUint16)
	for at := len(file); at >= first; {
		if at = bytes.LastIndex(file[first:at], []byte(endMagic)) + first; at < first {
			break
		}
		// A comment follows the record, up to the end of the file.
		comment := len(file) - at - endSize
		switch {
		case comment < 0 || comment < int(le.Uint16(file[at+20:])):
			missing = fmt.Errorf("found an end record that is cut off, expected a whole one")
		case comment > int(le.Uint16(file[at+20:])):
			missing = fmt.Errorf("found bytes behind its end, expected none")
		case end >= 0:
			return nil, 0, 0, fmt.Errorf("found end records at the offsets %d and %d, expected one", at, end)
		default:
			end = at
		}
	}
	if end < 0 {
		return nil, 0, 0, missing
	}
	record := file[end:]
	count = uint64(le.Uint16(record[10:]))
	size, offset := uint64(le.Uint32(record[12:])), uint64(le.Uint32(record[16:]))
	disks := [3]uint64{uint64(le.Uint16(record[4:])), uint64(le.Uint16(record[6:])), count - uint64(le.Uint16(record[8:]))}
	limit := end
	// An archive beyond the range of these fields has the same record once more,
	// wider, and a pointer to it, between the directory and the end record.
	if wide := end - zip64LocateSize - zip64EndSize; offset+size != uint64(end) && wide >= 0 && string(file[end-zip64LocateSize:][:4]) == locatorMagic {
		pointer, record := file[end-zip64LocateSize:end], file[wide:]
		if found := le.Uint64(pointer[8:]); found != uint64(wide) || string(record[:4]) != zip64EndMagic || le.Uint64(record[4:]) != zip64EndSize-12 {
			return nil, 0, 0, fmt.Errorf("found its zip64 end record said to be at offset %d, expected one of %d bytes at %d", found, zip64EndSize, wide)
		}
		for _, field := range []struct {
			name          string
			narrow, limit uint64
			wide          uint64
		}{
			{"members", count, math.MaxUint16, le.Uint64(record[32:])},
			{"bytes of directory", size, math.MaxUint32, le.Uint64(record[40:])},
			{"bytes before the directory", offset, math.MaxUint32, le.Uint64(record[48:])},
		} {
			if field.narrow != field.limit && field.narrow != field.wide {
				return nil, 0, 0, fmt.Errorf("found %d %s in one end record and %d in the other, expected the same", field.narrow, field.name, field.wide)
			}
		}
		count, size, offset = le.Uint64(record[32:]), le.Uint64(record[40:]), le.Uint64(record[48:])
		disks = [3]uint64{uint64(le.Uint32(record[16:])) + uint64(le.Uint32(pointer[4:])), uint64(le.Uint32(record[20:])), count - le.Uint64(record[24:])}
		limit = wide
	}
	if disks != [3]uint64{} {
		return nil, 0, 0, fmt.Errorf("found it to be a part of several, expected a whole one")
	}
	if offset > uint64(limit) || size != uint64(limit)-offset {
		return nil, 0, 0, fmt.Errorf("found a directory of %d bytes at offset %d, expected it to end at %d, where the end record begins", size, offset, limit)
	}
	return file[offset:limit], int(offset), count, nil
}

// parseDirectory reads the directory, which its entries must fill.
func parseDirectory(directory []byte, count uint64) ([]zipMember, error) {
	le := binary.LittleEndian
	if most := uint64(len(directory) / entrySize); count > most {
		return nil, fmt.Errorf("found %d members in %d bytes, expected at most %d", count, len(directory), most)
	}
	members := make([]zipMember, count)
	rest := directory
	for i := range members {
		if len(rest) < entrySize || string(rest[:4]) != entryMagic {
			return nil, fmt.Errorf("found no entry for member %d of %d, expected one", i+1, count)
		}
		fixed := rest[:entrySize]
		nameLen, extraLen, commentLen := int(le.Uint16(fixed[28:])), int(le.Uint16(fixed[30:])), int(le.Uint16(fixed[32:]))
		if rest = rest[entrySize:]; len(rest) < nameLen+extraLen+commentLen {
			return nil, fmt.Errorf("found an entry of %d bytes for member %d, expected at most the %d that are left", entrySize+nameLen+extraLen+commentLen, i+1, entrySize+len(rest))
		}
		m := &members[i]
		m.name = string(rest[:nameLen])
		m.flags, m.method, m.crc = le.Uint16(fixed[8:]), le.Uint16(fixed[10:]), le.Uint32(fixed[16:])
		err := readZip64(rest[nameLen:nameLen+extraLen], []wideField{
			{&m.size, le.Uint32(fixed[24:])}, {&m.packed, le.Uint32(fixed[20:])}, {&m.header, le.Uint32(fixed[42:])},
		})
		if err == nil && le.Uint16(fixed[34:]) != 0 {
			err = fmt.Errorf("found it in part %d of the archive, expected one part", le.Uint16(fixed[34:]))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", label(m.name), err)
		}
		rest = rest[nameLen+extraLen+commentLen:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("found %d bytes behind its %d entries, expected none", len(rest), count)
	}
	return members, nil
}

// wideField is a field of 32 bits whose value, if that is too small, is in the
// zip64 extra field.
type wideField struct {
	value  *uint64
	narrow uint32
}

// readZip64 sets the fields, in the order of the zip64 extra field. That has
// those which are too wide elsewhere, or, as some write it, all.
func readZip64(extra []byte, fields []wideField) error {
	le := binary.LittleEndian
	var wide []byte
	for rest := extra; len(rest) > 0; {
		if len(rest) < 4 || len(rest)-4 < int(le.Uint16(rest[2:])) {
			return fmt.Errorf("found an extra field that ends beyond its place, expected one within")
		}
		id, value := le.Uint16(rest), rest[4:4+le.Uint16(rest[2:])]
		if rest = rest[4+len(value):]; id != zip64Extra {
			continue
		}
		if wide != nil {
			return fmt.Errorf("found two zip64 fields, expected one")
		}
		wide = append([]byte{}, value...)
	}
	expected := 0
	for _, f := range fields {
		if f.narrow == math.MaxUint32 {
			expected += 8
		}
	}
	all := len(wide) == 8*len(fields)
	if len(wide) != expected && !all {
		return fmt.Errorf("found a zip64 field of %d bytes, expected %d", len(wide), expected)
	}
	for _, f := range fields {
		*f.value = uint64(f.narrow)
		if f.narrow == math.MaxUint32 || all {
			*f.value = le.Uint64(wide)
			wide = wide[8:]
		}
		if f.narrow != math.MaxUint32 && *f.value != uint64(f.narrow) {
			return fmt.Errorf("found %d in the zip64 field and %d outside, expected the same", *f.value, f.narrow)
		}
	}
	return nil
}

// readLocal reads the local header of a member, which must say what the directory
// says, and takes the data behind it. It returns where the member ends. The file
// has no more than the members, next is where the one behind this begins.
func (m *zipMember) readLocal(file []byte, next uint64) (end uint64, err error) {
	le := binary.LittleEndian
	rest := file[m.header:]
	if len(rest) < localSize || string(rest[:4]) != localMagic {
		return 0, fmt.Errorf("found no local header at offset %d, expected one", m.header)
	}
	fixed := rest[:localSize]
	nameLen, extraLen := int(le.Uint16(fixed[26:])), int(le.Uint16(fixed[28:]))
	if rest = rest[localSize:]; len(rest) < nameLen+extraLen {
		return 0, fmt.Errorf("found a local header of %d bytes, expected at most the %d up to the directory", localSize+nameLen+extraLen, localSize+len(rest))
	}
	local := zipMember{name: string(rest[:nameLen]), flags: le.Uint16(fixed[6:]), method: le.Uint16(fixed[8:]), crc: le.Uint32(fixed[14:])}
	err = readZip64(rest[nameLen:nameLen+extraLen], []wideField{{&local.size, le.Uint32(fixed[22:])}, {&local.packed, le.Uint32(fixed[18:])}})
	if err != nil {
		return 0, fmt.Errorf("local header: %w", err)
	}
	if local.name != m.name {
		return 0, fmt.Errorf("name: found %s in the local header and %s in the directory, expected the same", label(local.name), label(m.name))
	}
	described := m.flags&flagDescriptor != 0
	for _, field := range []struct {
		name             string
		local, directory uint64
		behind           bool // if there is a data descriptor it has this field, and the header may have 0
	}{
		{"flags", uint64(local.flags), uint64(m.flags), false},
		{"compression method", uint64(local.method), uint64(m.method), false},
		{"checksum", uint64(local.crc), uint64(m.crc), true},
		{"compressed size", local.packed, m.packed, true},
		{"size", local.size, m.size, true},
	} {
		if field.local != field.directory && !(field.behind && described && field.local == 0) {
			return 0, fmt.Errorf("%s: found %d in the local header and %d in the directory, expected the same", field.name, field.local, field.directory)
		}
	}
	rest = rest[nameLen+extraLen:]
	start := uint64(len(file) - len(rest))
	if m.packed > uint64(len(rest)) {
		return 0, fmt.Errorf("found %d bytes at offset %d, expected them to end by %d, where the directory begins", m.packed, start, len(file))
	}
	m.data, rest = rest[:m.packed], rest[m.packed:]
	if !described {
		return start + m.packed, nil
	}
	if next < start+m.packed {
		return 0, fmt.Errorf("found %d bytes at offset %d, expected them to end by %d, where another member begins", m.packed, start, next)
	}
	// The descriptor may begin with a mark, and have sizes of 32 or 64 bits.
	space := int(next - start - m.packed)
	var forms [][]byte
	for _, mark := range []string{"", descriptorMagic} {
		head := le.AppendUint32([]byte(mark), m.crc)
		forms = append(forms,
			le.AppendUint32(le.AppendUint32(bytes.Clone(head), uint32(m.packed)), uint32(m.size)),
			le.AppendUint64(le.AppendUint64(bytes.Clone(head), m.packed), m.size))
	}
	for _, form := range forms {
		if space == len(form) && bytes.Equal(rest[:space], form) {
			return next, nil
		}
	}
	return 0, fmt.Errorf("found %d bytes behind its data, expected a data descriptor with the checksum %08x and the sizes %d and %d", space, m.crc, m.packed, m.size)
}
