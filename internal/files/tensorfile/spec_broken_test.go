package tensorfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// broken are files that must be refused. FILE means the path.
func broken() []brokenFile {
	two := f32s(le, 1, 2)
	good := npy(1, dict("<f4", "False", "(2,)"), two)
	member := zipMember{name: "x.npy", data: good}
	archive := npz(member)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))

	n := func(name, text, want string) brokenFile { // a wrong header before two float32
		return brokenFile{name, "x.npy", "", npy(1, text, two), want}
	}
	z := func(name string, m zipMember, want string) brokenFile {
		return brokenFile{name, "x.npz", ":x", npz(m), want}
	}
	s := func(name, header string, size int, want string) brokenFile {
		return brokenFile{name, "x.safetensors", ":x", safetensors(header, make([]byte, size)), want}
	}
	entry := func(rest string) string { return `{"x":{` + rest + `}}` }
	replace := func(b []byte, old, new string) []byte {
		return []byte(strings.Replace(string(b), old, new, 1))
	}
	deep := strings.Repeat("[", 20000)

	return []brokenFile{
		// Any file.
		{"empty file", "x.npy", "", nil, `FILE: size: found an empty file, expected .npy, .npz, safetensors or GGUF`},
		{"foreign file", "x.bin", "", []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00"), `FILE: format: found the first bytes "\x7fELF\x02\x01\x01\x00", expected a .npy, .npz, safetensors or GGUF file`},
		{"lists of JSON", "x.json", "", []byte("\n[[1, 2]]"), `FILE: format: found text that looks like JSON, expected a .npy, .npz, safetensors or GGUF file: in Python numpy.save('x.npy', numpy.float32(json.load(open("x.json")))) makes one of a list of lists`},
		{"foreign short file", "x", "", []byte("PK"), `FILE: format: found the first bytes "PK", expected a .npy, .npz, safetensors or GGUF file`},
		{"text", "x.npy", "", []byte("1.0 2.0\n"), `FILE: magic: found "1.0 2.", expected "\x93NUMPY"`},
		{"npy named npz", "x.npz", ":x", good, `FILE: archive: found zip: not a valid zip file, expected a zip archive as numpy.savez writes it`},
		{"npz named npy", "x.npy", "", archive, `FILE: magic: found "PK\x03\x04-\x00", expected "\x93NUMPY"`},
		{"npy named safetensors", "x.safetensors", ":x", good, `FILE: header length: found 379676406402707, expected at most 128`},

		// .npy: truncated at each part.
		{"within the magic", "x.npy", "", good[:4], `FILE: magic: found "\x93NUM", expected "\x93NUMPY"`},
		{"after the magic", "x.npy", "", good[:6], `FILE: version: found the end of the file, expected 1.0, 2.0 or 3.0`},
		{"within the length", "x.npy", "", good[:9], `FILE: header length: found the end of the file, expected 2 bytes`},
		{"within the long length", "x.npy", "", npy(2, "{}", nil)[:11], `FILE: header length: found the end of the file, expected 4 bytes`},
		{"after the length", "x.npy", "", good[:10], `FILE: header length: found 118, expected at most 0`},
		{"within the header", "x.npy", "", good[:60], `FILE: header length: found 118, expected at most 50`},
		{"after the header", "x.npy", "", good[:len(good)-8], `FILE: data: found 0 bytes, expected 8 (shape [2] of float32)`},
		{"within the data", "x.npy", "", good[:len(good)-1], `FILE: data: found 7 bytes, expected 8 (shape [2] of float32)`},
		{"one byte more", "x.npy", "", append(good[:len(good):len(good)], 0), `FILE: data: found 9 bytes, expected 8 (shape [2] of float32)`},

		// .npy: magic and version.
		{"magic", "x.npy", "", replace(good, "NUMPY", "NUMPi"), `FILE: magic: found "\x93NUMPi", expected "\x93NUMPY"`},
		{"version 0", "x.npy", "", npy(0, dict("<f4", "False", "(2,)"), two), `FILE: version: found 0.0, expected 1.0, 2.0 or 3.0`},
		{"version 1.1", "x.npy", "", replace(good, "\x01\x00", "\x01\x01"), `FILE: version: found 1.1, expected 1.0, 2.0 or 3.0`},
		{"huge header", "x.npy", "", append([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), good[10:]...), `FILE: header length: found 4294967295, expected at most 126`},

		// .npy: the dict.
		n("no dict", "", `FILE: header: found "", expected a dict in braces`),
		n("a list", "['descr']", `FILE: header: found "['descr']", expected a dict in braces`),
		n("empty dict", "{}", `FILE: header: found the keys [], expected descr, fortran_order and shape`),
		n("open dict", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), ", `FILE: header: found "{'descr': '<f4', 'fortran_order': False,", expected a dict in braces`),
		n("code", "__import__('os')", `FILE: header: found "__import__('os')", expected a dict in braces`),
		n("a key twice", "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", `FILE: header: found the key "descr" twice, expected once`),
		n("a key missing", "{'descr': '<f4', 'shape': (2,), }", `FILE: header: found the keys ["descr" "shape"], expected descr, fortran_order and shape`),
		n("a key too many", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", `FILE: header: found the key "x", expected descr, fortran_order or shape`),
		n("a key without quotes", "{descr: '<f4', 'fortran_order': False, 'shape': (2,), }", `FILE: header: found "descr: '<f4', 'fortran_order': False, 's", expected a key in quotes, a colon, a value and a comma`),
		n("no colon", "{'descr' '<f4', 'fortran_order': False, 'shape': (2,), }", `FILE: header: found "'descr' '<f4', 'fortran_order': False, '", expected a key in quotes, a colon, a value and a comma`),
		n("no comma", "{'descr': '<f4' 'fortran_order': False, 'shape': (2,), }", `FILE: header: found "'descr': '<f4' 'fortran_order': False, '", expected a key in quotes, a colon, a value and a comma`),
		n("an escape", `{'descr': '\x3cf4', 'fortran_order': False, 'shape': (2,), }`, `FILE: header: found "'descr': '\\x3cf4', 'fortran_order': Fals", expected a key in quotes, a colon, a value and a comma`),
		n("an open string", "{'descr': '<f4, }", `FILE: header: found "'descr': '<f4,", expected a key in quotes, a colon, a value and a comma`),
		n("a boolean in lower case", dict("<f4", "false", "(2,)"), `FILE: header: fortran_order: found "false", expected True or False`),
		n("a number for a boolean", dict("<f4", "0", "(2,)"), `FILE: header: fortran_order: found "0", expected True or False`),

		// .npy: types.
		n("complex", dict("<c8", "False", "(1,)"), `FILE: header: descr: found "<c8", expected a type of numbers: <f2, <f4, <f8, <i1 to <i8 or <u1 to <u8`),
		n("object", dict("|O", "False", "(1,)"), `FILE: header: descr: found "|O", objects of Python, expected numbers: save np.vstack(x).astype(np.float32)`),
		n("text type", dict("<U2", "False", "(1,)"), `FILE: header: descr: found "<U2", expected a type of numbers: <f2, <f4, <f8, <i1 to <i8 or <u1 to <u8`),
		n("structured type", "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", `FILE: header: descr: found a structured type, expected a plain one such as '<f4'`),
		n("big-endian", dict(">f4", "False", "(2,)"), `FILE: header: descr: found ">f4", big-endian, expected little-endian numbers: save x.astype('<f4')`),
		n("the order of the machine", dict("=f4", "False", "(2,)"), `FILE: header: descr: found "=f4", expected a type of numbers: <f2, <f4, <f8, <i1 to <i8 or <u1 to <u8`),
		n("empty type", dict("", "False", "(2,)"), `FILE: header: descr: found "", expected a type of numbers: <f2, <f4, <f8, <i1 to <i8 or <u1 to <u8`),
		n("long double", dict("<f16", "False", "(1,)"), `FILE: header: descr: found "<f16", expected a type of numbers: <f2, <f4, <f8, <i1 to <i8 or <u1 to <u8`),

		// .npy: shapes.
		n("a number for a tuple", dict("<f4", "False", "2"), `FILE: header: shape: found "2", expected a tuple`),
		n("a number in brackets", dict("<f4", "False", "(2)"), `FILE: header: shape: found "(2)", expected a tuple, with a comma`),
		n("a list for a tuple", dict("<f4", "False", "[2]"), `FILE: header: shape: found "[2],", expected a tuple`),
		n("only a comma", dict("<f4", "False", "(,)"), `FILE: header: shape: found "", expected an integer from 0 to 9223372036854775807`),
		n("negative size", dict("<f4", "False", "(-2,)"), `FILE: header: shape: found "-2", expected an integer from 0 to 9223372036854775807`),
		n("leading zero", dict("<f4", "False", "(02,)"), `FILE: header: shape: found "02", expected an integer from 0 to 9223372036854775807`),
		n("a size beyond int", dict("<f4", "False", "(99999999999999999999,)"), `FILE: header: shape: found "99999999999999999999", expected an integer from 0 to 9223372036854775807`),
		n("a product beyond int", dict("<f4", "False", "(4294967296, 4294967296)"), `FILE: shape: found [4294967296 4294967296] of float32, expected a size within 9223372036854775807 bytes`),
		n("a product that wraps to 8 bytes", dict("<f4", "False", "(4611686018427387906,)"), `FILE: shape: found [4611686018427387906] of float32, expected a size within 9223372036854775807 bytes`),
		n("a product above int and a 0", dict("<f4", "False", "(0, 4294967296, 4294967296)"), `FILE: shape: found [0 4294967296 4294967296] of float32, expected a size within 9223372036854775807 bytes`),
		n("nine dimensions", dict("<f4", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 2)"), `FILE: header: shape: found more than 8 dimensions, expected at most 8`),
		n("too large", dict("<f4", "False", "(3,)"), `FILE: data: found 8 bytes, expected 12 (shape [3] of float32)`),
		n("too small", dict("<f4", "False", "(1,)"), `FILE: data: found 8 bytes, expected 4 (shape [1] of float32)`),
		n("data for no elements", dict("<f4", "False", "(0,)"), `FILE: data: found 8 bytes, expected 0 (shape [0] of float32)`),

		// .npy: values and types that are not floats.
		{"NaN", "x.npy", "", npy(1, dict("<f4", "False", "(2, 3)"), f32s(le, 1, 2, 3, 4, nan, 6)), `FILE: values: found NaN at row 1, column 1, expected finite numbers`},
		{"Inf before NaN", "x.npy", "", npy(1, dict("<f4", "False", "(2, 2)"), f32s(le, 1, 2, -inf, nan)), `FILE: values: found -Inf at row 1, column 0, expected finite numbers`},
		{"Inf in Fortran order", "x.npy", "", npy(1, dict("<f4", "True", "(2, 3)"), f32s(le, 1, 2, 3, inf, 5, 6)), `FILE: values: found +Inf at row 1, column 1, expected finite numbers`},
		{"NaN in three dimensions", "x.npy", "", npy(1, dict("<f4", "False", "(2, 1, 2)"), f32s(le, 1, 2, nan, 4)), `FILE: values: found NaN at index [1 0 0], expected finite numbers`},
		{"NaN alone", "x.npy", "", npy(1, dict("<f4", "False", "()"), f32s(le, nan)), `FILE: values: found NaN as the only element, expected finite numbers`},
		{"half Inf", "x.npy", "", npy(1, dict("<f2", "False", "(1, 3)"), u16s(le, 0, 1, 0xfc00)), `FILE: values: found -Inf at row 0, column 2, expected finite numbers`},
		{"half NaN", "x.npy", "", npy(1, dict("<f2", "False", "(2,)"), u16s(le, 0x7c01, 0)), `FILE: values: found NaN at index 0, expected finite numbers`},
		{"float64 beyond float32", "x.npy", "", npy(1, dict("<f8", "False", "(2, 2)"), f64s(le, 1, -1e300, 3, math.NaN())), `FILE: values: found -1e+300 at row 0, column 1, expected numbers within float32`},
		{"float64 just beyond float32", "x.npy", "", npy(1, dict("<f8", "True", "(2, 1)"), f64s(le, 1, math.MaxFloat32+0x1p103)), `FILE: values: found 3.4028235677973366e+38 at row 1, column 0, expected numbers within float32`},
		{"float64 NaN", "x.npy", "", npy(1, dict("<f8", "False", "(2,)"), f64s(le, math.NaN(), 1e300)), `FILE: values: found NaN at index 0, expected finite numbers`},
		{"integers", "x.npy", "", npy(1, dict("<i4", "False", "(2,)"), two), `FILE: dtype: found int32, expected float16, bfloat16, float32 or float64`},
		{"name for an npy", "x.npy", ":w", good, `FILE: name: found w, expected none, since a .npy file holds one array`},
		{"an empty name for an npy", "x.npy", ":", good, `FILE: name: found "", expected none, since a .npy file holds one array`},

		// .npz
		{"no name", "x.npz", "", archive, `FILE: name: found no name, expected one of x`},
		{"empty name", "x.npz", ":", archive, `FILE: name: found no name, expected one of x`},
		{"missing name", "x.npz", ":w", npz(member, zipMember{name: "y.npy", data: good}), `FILE: name: found w, expected one of x, y`},
		{"no members", "x.npz", ":x", npz(), `FILE: name: found x, expected a file that holds arrays`},
		{"a zip of something else", "x.npz", ":x", npz(zipMember{name: "data.pkl", data: good}), `FILE: archive: found data.pkl and no member that ends in .npy, expected an archive as numpy.savez writes it`},
		{"a name twice", "x.npz", ":x", npz(member, member), `FILE: name: found 2 members x, expected one`},
		{"truncated directory", "x.npz", ":x", archive[:len(archive)-1], `FILE: archive: found zip: not a valid zip file, expected a zip archive as numpy.savez writes it`},
		z("wrong checksum", zipMember{name: "x.npy", data: good, crc: 1}, `FILE:x: checksum: found e7abca9a, expected e7abca9b`),
		z("wrong checksum of a compressed member", zipMember{name: "x.npy", data: good, deflated: true, crc: 1}, `FILE:x: member: found zip: checksum error, expected a deflated array`),
		z("larger than its place", zipMember{name: "x.npy", data: good, size: 1 << 20, packedSize: 1 << 20}, `FILE:x: member: found 1048712 bytes at offset 55, expected them to end by 264, where the file ends`),
		z("two sizes of a stored member", zipMember{name: "x.npy", data: good, size: 4}, `FILE:x: member: found 136 stored bytes, expected the 140 of the array`),
		z("compressed, shorter than stated", zipMember{name: "x.npy", data: good, deflated: true, size: 4}, `FILE:x: member: found unexpected EOF, expected a deflated array`),
		z("compressed, longer than stated", zipMember{name: "x.npy", data: good, deflated: true, size: -4}, `FILE:x: member: found more than the 132 bytes that the archive states, expected a deflated array`),
		z("compressed, beyond the limit of deflate", zipMember{name: "x.npy", data: good, deflated: true, size: 1 << 30}, `FILE:x: member: found a size of 1073741960 from 83 compressed bytes, expected at most 1032 times as much`),
		z("no deflate stream", zipMember{name: "x.npy", data: good, method: 8}, `FILE:x: member: found unexpected EOF, expected a deflated array`),
		z("method", zipMember{name: "x.npy", data: good, method: 12}, `FILE:x: member: found compression method 12, expected 0 (stored) or 8 (deflated)`),
		z("encrypted", zipMember{name: "x.npy", data: good, flags: 1}, `FILE:x: member: found it encrypted, expected a readable one`),
		z("member is no npy", zipMember{name: "x.npy", data: []byte("hello, world")}, `FILE:x: magic: found "hello,", expected "\x93NUMPY"`),
		z("compressed member is no npy", zipMember{name: "x.npy", data: []byte("hello, world"), deflated: true}, `FILE:x: magic: found "hello,", expected "\x93NUMPY"`),
		z("empty member", zipMember{name: "x.npy"}, `FILE:x: magic: found "", expected "\x93NUMPY"`),
		z("empty compressed member", zipMember{name: "x.npy", deflated: true}, `FILE:x: magic: found "", expected "\x93NUMPY"`),
		z("member with data too short", zipMember{name: "x.npy", data: good[:len(good)-4]}, `FILE:x: data: found 4 bytes, expected 8 (shape [2] of float32)`),
		z("compressed member with data too short", zipMember{name: "x.npy", data: good[:len(good)-4], deflated: true}, `FILE:x: data: found 4 bytes, expected 8 (shape [2] of float32)`),
		z("compressed member of a huge shape", zipMember{name: "x.npy", data: npy(1, dict("<f4", "False", "(1000000000000,)"), two), deflated: true}, `FILE:x: data: found 8 bytes, expected 4000000000000 (shape [1000000000000] of float32)`),
		z("compressed NaN", zipMember{name: "x.npy", data: npy(1, dict("<f4", "False", "(1, 2)"), f32s(le, 1, nan)), deflated: true}, `FILE:x: values: found NaN at row 0, column 1, expected finite numbers`),
		z("local header elsewhere", zipMember{name: "x.npy", data: good, at: 5}, `FILE:x: member: found zip: not a valid zip file, expected a zip archive as numpy.savez writes it`),
		z("local header outside", zipMember{name: "x.npy", data: good, at: 1 << 30}, `FILE:x: member: found EOF, expected a zip archive as numpy.savez writes it`),

		// safetensors: the frame.
		{"only seven bytes", "x.safetensors", ":x", make([]byte, 7), `FILE: header length: found a file of 7 bytes, expected at least 8`},
		{"no header", "x.safetensors", ":x", make([]byte, 8), `FILE: header: found "", expected a JSON object`},
		{"header beyond the file", "x.safetensors", ":x", []byte("\x03\x00\x00\x00\x00\x00\x00\x00{}"), `FILE: header length: found 3, expected at most 2`},
		{"header beyond int", "x.safetensors", ":x", []byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"), `FILE: header length: found 18446744073709551615, expected at most 2`},
		s("no JSON", "hello", 0, `FILE: header: found "hello   ", expected a JSON object`),
		s("an array", "[]", 0, `FILE: header: found "[]      ", expected a JSON object`),
		s("a space before", " {}", 0, `FILE: header: found " {}     ", expected a JSON object`),
		s("open object", `{"x":{"dtype":"F32"`, 0, `FILE: header: found unexpected end of JSON input at byte 23, expected JSON`),
		s("bad JSON", `{"x":{"dtype" "F32"}}`, 0, `FILE: header: found invalid character '"' after object key at byte 14, expected JSON`),
		s("two objects", "{}{}", 0, `FILE: header: found invalid character '{' after top-level value at byte 2, expected JSON`),
		s("invalid UTF-8", "{\"\xff\":1}", 0, `FILE: header: found bytes that are not UTF-8, expected JSON`),
		s("deep JSON", `{"x":`+deep, 0, `FILE: header: found values within values 101 deep at byte 104, expected at most 100`),
		s("deep JSON in a field", entry(`"shape":`+deep), 0, `FILE: header: found values within values 101 deep at byte 112, expected at most 100`),
		s("no tensors", "{}", 0, `FILE: name: found x, expected a file that holds arrays`),
		s("data for no tensors", "{}", 4, `FILE: data: found 4 bytes, expected the 0 of the tensors`),

		// safetensors: the entries.
		s("a number for an entry", `{"x":1}`, 0, `FILE: header: tensor x: found "1", expected an object`),
		s("null for an entry", `{"x":null}`, 0, `FILE: header: tensor x: found "null", expected an object`),
		s("a name twice", `{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, `FILE: header: found "x" twice, expected it once`),
		s("metadata twice", `{"__metadata__":{},"__metadata__":{},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, `FILE: header: found "__metadata__" twice, expected it once`),
		s("metadata with a key twice", `{"__metadata__":{"a" : "1", "b":"a" ,"a":"2"},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, `FILE: header: __metadata__: found "a" twice, expected it once`),
		s("metadata with a key twice, once with an escape", `{"__metadata__":{"a":"1","\u0061":"2"},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, `FILE: header: __metadata__: found "a" twice, expected it once`),
		s("metadata that is no object", `{"__metadata__": ["a"],"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, `FILE: header: __metadata__: found "[\"a\"]", expected an object`),
		s("metadata that is an object in an object", `{"__metadata__":{"a":{"b":"c"}},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, `FILE: header: __metadata__: a: found "{\"b\":\"c\"}", expected a string`),
		s("metadata without a value", `{"__metadata__":{"a"},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, `FILE: header: found invalid character '}' after object key at byte 20, expected JSON`),
		s("metadata without an end", `{"__metadata__":{"a":"b"`, 4, `FILE: header: found unexpected end of JSON input at byte 23, expected JSON`),
		s("metadata that is no text", `{"__metadata__":{"a":1},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, `FILE: header: __metadata__: a: found "1", expected a string`),
		s("a field twice", entry(`"dtype":"F16","dtype":"F32","shape":[1],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: found "dtype" twice, expected it once`),
		s("a field too many", entry(`"dtype":"F32","shape":[1],"data_offsets":[0,4],"stride":1`), 4, `FILE: header: tensor x: found the field stride, expected dtype, shape and data_offsets`),
		s("a field in capitals", entry(`"DTYPE":"F32","shape":[1],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: found the field DTYPE, expected dtype, shape and data_offsets`),
		s("no dtype", entry(`"shape":[1],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: found 2 fields, expected dtype, shape and data_offsets`),
		s("no offsets", entry(`"dtype":"F32","shape":[0]`), 0, `FILE: header: tensor x: found 2 fields, expected dtype, shape and data_offsets`),
		s("dtype not known", entry(`"dtype":"Q4","shape":[1],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: dtype: found Q4, expected one of [F16 BF16 F32 F64 I8 I16 I32 I64 U8 U16 U32 U64 BOOL C64 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ F6_E2M3 F6_E3M2 F4]`),
		s("dtype is a number", entry(`"dtype":32,"shape":[1],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: dtype: found "32", expected a string`),
		s("negative size", entry(`"dtype":"F32","shape":[-1],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: shape: found "-1", expected an integer of 0 or more within 63 bits`),
		s("a fraction", entry(`"dtype":"F32","shape":[1.0],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: shape: found "1.0", expected an integer of 0 or more within 63 bits`),
		s("text for a size", entry(`"dtype":"F32","shape":["1"],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: shape: found "\"1\"", expected an integer of 0 or more within 63 bits`),
		s("null for a shape", entry(`"dtype":"F32","shape":null,"data_offsets":[0,4]`), 4, `FILE: header: tensor x: shape: found "null", expected an array`),
		s("a size beyond int", entry(`"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: shape: found "9223372036854775808", expected an integer of 0 or more within 63 bits`),
		s("a product beyond int", entry(`"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]`), 4, `FILE:x: shape: found [4294967296 4294967296] of float32, expected a size within 9223372036854775807 bytes`),
		s("nine dimensions", entry(`"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]`), 4, `FILE: header: tensor x: shape: found more than 8 integers, expected at most 8`),
		s("too large", entry(`"dtype":"F32","shape":[2],"data_offsets":[0,4]`), 4, `FILE:x: data: found 4 bytes, expected 8 (shape [2] of float32)`),
		s("too small", entry(`"dtype":"F16","shape":[1],"data_offsets":[0,4]`), 4, `FILE:x: data: found 4 bytes, expected 2 (shape [1] of float16)`),

		// safetensors: offsets.
		s("one offset", entry(`"dtype":"F32","shape":[1],"data_offsets":[4]`), 4, `FILE: header: tensor x: data_offsets: found [4], expected a begin and an end, in order`),
		s("three offsets", entry(`"dtype":"F32","shape":[1],"data_offsets":[0,4,8]`), 4, `FILE: header: tensor x: data_offsets: found more than 2 integers, expected at most 2`),
		s("negative offset", entry(`"dtype":"F32","shape":[1],"data_offsets":[-4,0]`), 4, `FILE: header: tensor x: data_offsets: found "-4", expected an integer of 0 or more within 63 bits`),
		s("end outside", entry(`"dtype":"F32","shape":[2],"data_offsets":[0,8]`), 4, `FILE:x: data: found 8 bytes at offset 0, expected them within the 4 bytes of data`),
		s("begin outside", entry(`"dtype":"F32","shape":[1],"data_offsets":[4,8]`), 4, `FILE:x: offset: found 4, expected 0, where the tensor before it ends`),
		s("end before begin", `{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4, `FILE: header: tensor x: data_offsets: found [4 0], expected a begin and an end, in order`),
		s("a gap at the end", entry(`"dtype":"F32","shape":[1],"data_offsets":[0,4]`), 8, `FILE: data: found 8 bytes, expected the 4 of the tensors`),
		s("a gap between", `{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12, `FILE:x: offset: found 8, expected 4, where the tensor before it ends`),
		s("overlap", `{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, `FILE:x: offset: found 4, expected 8, where the tensor before it ends`),
		s("the same bytes twice", `{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, `FILE:x: offset: found 0, expected 4, where the tensor before it ends`),
		s("missing name", `{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"v":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, `FILE: name: found x, expected one of w, v`),
		{"no name", "x.safetensors", "", safetensors(entry(`"dtype":"F32","shape":[1],"data_offsets":[0,4]`), make([]byte, 4)), `FILE: name: found no name, expected one of x`},
		{"NaN in bfloat16", "x.safetensors", ":x", safetensors(entry(`"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]`), u16s(le, 0, 0x7fc0)), `FILE:x: values: found NaN at row 0, column 1, expected finite numbers`},
		{"a type without numbers", "x.safetensors", ":x", safetensors(entry(`"dtype":"BOOL","shape":[1],"data_offsets":[0,1]`), []byte{1}), `FILE:x: dtype: found bool, expected float16, bfloat16, float32 or float64`},
		{"a name that wants to be read as more", "x.safetensors", ":x", safetensors("{\"a\\nb\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", []byte{1}), `FILE: name: found x, expected one of "a\nb"`},
	}
}

type brokenFile struct {
	name, file, suffix string
	bytes              []byte
	want               string // of FILE, the file's path
}

func TestBrokenFiles(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("the texts name the limits of a 64-bit machine")
	}
	cases := broken()
	if len(cases) < 60 {
		t.Errorf("%d cases, want 60 or more", len(cases))
	}
	for _, c := range cases {
		t.Run(c.file+" "+c.name, func(t *testing.T) {
			path := file(t, c.file, c.bytes)
			x, err := tensorfile.OpenTensor(path + c.suffix)
			if err == nil {
				defer x.Close()
				var v []float32
				if v, err = x.Float32s(); v != nil && err != nil {
					t.Errorf("found values %v with an error", v)
				}
			}
			if err == nil {
				t.Fatalf("it was read, want the error %s", c.want)
			}
			got := strings.ReplaceAll(err.Error(), path, "FILE")
			if want := "l2s: " + c.want; got != want {
				t.Errorf("found %q\n want %q", got, want)
			}
		})
	}
}

// refuse checks an error, in which FILE means path.
func refuse(t *testing.T, err error, path, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", want)
	} else if got := strings.ReplaceAll(err.Error(), path, "FILE"); got != "l2s: "+want {
		t.Errorf("found %q\n want %q", got, "l2s: "+want)
	}
}

func TestNotAFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the system has its own texts on Windows")
	}
	dir := t.TempDir()
	_, err := tensorfile.OpenTensor(dir)
	refuse(t, err, dir, "FILE: found a folder, expected a file")
	_, err = tensorfile.OpenSafetensors(dir)
	refuse(t, err, dir, "FILE: found a folder, expected a file")
	for _, name := range []string{"none.npy", "none.npz", "none.safetensors", "none"} {
		path := filepath.Join(dir, name)
		for _, suffix := range []string{"", ":x", ":a:b"} {
			_, err = tensorfile.OpenTensor(path + suffix)
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s%s: %v is not fs.ErrNotExist", name, suffix, err)
			}
			if want := path; name == "none" {
				refuse(t, err, want+suffix, "FILE: no such file or directory")
			} else if name != "none.npy" || suffix == "" {
				refuse(t, err, want, "FILE: no such file or directory")
			}
		}
		_, err = tensorfile.OpenSafetensors(path)
		refuse(t, err, path, "FILE: no such file or directory")
	}
	_, err = tensorfile.OpenTensor("")
	refuse(t, err, "FILE", `"": no such file or directory`)
	if info, err := os.Stat("/dev/zero"); err == nil && !info.Mode().IsRegular() {
		_, err = tensorfile.OpenTensor("/dev/zero") // has no end
		refuse(t, err, "/dev/zero", "FILE: found a device or pipe, expected a regular file")
	}
}

func TestWrongUse(t *testing.T) {
	path := file(t, "x.npy", npy(1, dict("<f4", "False", "(2, 3)"), f32s(le, 1, 2, 3, 4, 5, 6)))
	x := open(t, path)
	for _, c := range []struct {
		room, first int
		want        string
	}{
		{3, -1, "FILE: rows: found first row -1, expected 0 to 2"},
		{3, 3, "FILE: rows: found first row 3, expected 0 to 2"},
		{3, 1 << 30, "FILE: rows: found first row 1073741824, expected 0 to 2"},
		{0, 0, "FILE: rows: found room for 0 elements, expected a row of at least 3"},
		{2, 1, "FILE: rows: found room for 2 elements, expected a row of at least 3"},
	} {
		n, err := x.ReadRows(make([]float32, c.room), c.first)
		refuse(t, err, path, c.want)
		if n != 0 {
			t.Errorf("%d rows with an error", n)
		}
	}
	_, err := x.Int64s()
	refuse(t, err, path, "FILE: dtype: found float32, expected an integer type")
	refuse(t, x.ExpectShape(-1, 4), path, "FILE: shape: found [2 3], expected [any 4]")
	refuse(t, x.ExpectShape(), path, "FILE: shape: found [2 3], expected []")

	path = file(t, "i.npy", npy(1, dict("<u8", "True", "(2, 2)"), ints(le, 8, 1, 2, -1, 4)))
	_, err = open(t, path).Int64s()
	refuse(t, err, path, "FILE: values: found 18446744073709551615 at index [0 1], expected integers within int64")
	_, err = open(t, path).ReadRows(make([]float32, 2), 0)
	refuse(t, err, path, "FILE: dtype: found uint64, expected float16, bfloat16, float32 or float64")

	path = file(t, "none.npy", npy(1, dict("<f4", "False", "(2, 0)"), nil))
	_, err = open(t, path).ReadRows(make([]float32, 2), 0)
	refuse(t, err, path, "FILE: shape: found [2 0], expected at least one column")
}

// An error names the row in the file, not in the block that was read.
func TestReadRowsRefusesOnlyItsRows(t *testing.T) {
	nan := float32(math.NaN())
	for descr, order := range map[string]string{"C": "False", "Fortran": "True"} {
		t.Run(descr, func(t *testing.T) {
			data := []float32{1, 2, 3, 4, 5, nan, 7, 8}
			if order == "True" {
				data = []float32{1, 3, 5, 7, 2, 4, nan, 8}
			}
			path := file(t, "x.npy", npy(1, dict("<f4", order, "(4, 2)"), f32s(le, data...)))
			x := open(t, path)
			dst := make([]float32, 4)
			if n, err := x.ReadRows(dst, 0); n != 2 || err != nil || !sameBits(dst, []float32{1, 2, 3, 4}) {
				t.Errorf("rows 0 and 1: %d, %v, %v", n, err, dst)
			}
			n, err := x.ReadRows(dst, 1)
			refuse(t, err, path, "FILE: values: found NaN at row 2, column 1, expected finite numbers")
			if n != 0 {
				t.Errorf("%d rows with an error", n)
			}
			if n, err := x.ReadRows(dst, 3); n != 1 || err != nil || !sameBits(dst[:2], []float32{7, 8}) {
				t.Errorf("row 3: %d, %v, %v", n, err, dst)
			}
		})
	}
}

func TestAfterClose(t *testing.T) {
	array := npy(1, dict("<f4", "False", "(1, 1)"), f32s(le, 1))
	tensors := safetensors(`{"x":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}`, f32s(le, 1))
	closed := func(t *testing.T, x *tensorfile.Tensor, name, path string) {
		t.Helper()
		want := name + ": data: found a closed file, expected an open one"
		_, err := x.Float32s()
		refuse(t, err, path, want)
		_, err = x.ReadRows(make([]float32, 1), 0)
		refuse(t, err, path, want)
		_, err = x.Int64s()
		refuse(t, err, path, want)
		if err := x.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
	}
	for name, c := range map[string]struct {
		file, suffix string
		bytes        []byte
	}{
		"npy":         {"x.npy", "", array},
		"stored":      {"x.npz", ":x", npz(zipMember{name: "x.npy", data: array})},
		"deflated":    {"x.npz", ":x", npz(zipMember{name: "x.npy", data: array, deflated: true})},
		"safetensors": {"x.safetensors", ":x", tensors},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, c.file, c.bytes)
			x := open(t, path+c.suffix)
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			closed(t, x, "FILE"+c.suffix, path)
		})
	}
	t.Run("tensor of a file", func(t *testing.T) {
		path := file(t, "x.safetensors", tensors)
		f, err := tensorfile.OpenSafetensors(path)
		if err != nil {
			t.Fatal(err)
		}
		x, err := f.Tensor("x")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		closed(t, x, "FILE:x", path)
	})
}

// To replace an open file is safe; one that is cut short in place gives an
// error, not the end of the program.
func TestFileThatChanges(t *testing.T) {
	const n = 1 << 16
	array := npy(1, dict("<f4", "False", fmt.Sprintf("(%d, 1)", n)), make([]byte, 4*n))
	path := file(t, "x.npy", array)
	x := open(t, path)
	if err := tensorfile.WriteNPY(path, []float32{1}, 1); err != nil {
		t.Skipf("an open file cannot be replaced here: %v", err)
	}
	if got := floats(t, x); len(got) != n || got[n-1] != 0 {
		t.Errorf("found %d elements after the file was replaced, want those that were there", len(got))
	}
	if got := floats(t, open(t, path)); !sameBits(got, []float32{1}) {
		t.Errorf("found %v in the new file, want 1", got)
	}

	path = file(t, "y.npy", array)
	x = open(t, path)
	if err := os.Truncate(path, 128); err != nil {
		t.Fatal(err)
	}
	v, err := x.Float32s()
	if err == nil && len(v) == n && v[n-1] == 0 {
		return // the file was read, not mapped
	}
	want := "FILE: data: found bytes that cannot be read any more, expected a file that stays as it was opened"
	refuse(t, err, path, want)
	_, err = x.ReadRows(make([]float32, n), 0)
	refuse(t, err, path, want)
}
