package tensorfile_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

func all([]byte) bool { return true }

// tiny is a file with a value of each type and three tensors.
func tiny() gguftest.File {
	return gguftest.File{
		Metadata: []gguftest.Value{
			gguftest.KV("general.architecture", "tiny"), gguftest.KV("tiny.layers", uint32(3)), gguftest.KV("tiny.offset", int32(-5)), gguftest.KV("tiny.scale", float32(0.25)),
			gguftest.KV("tiny.big", uint64(1)<<40), gguftest.KV("tiny.flag", true), gguftest.KV("tokenizer.ggml.tokens", []string{"a", "", "ccc"}),
			gguftest.KV("tiny.bytes", gguftest.Raw("\x09\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x01\xff\x02")),
		},
		Tensors: []gguftest.Tensor{
			{Name: "w", Type: gguftest.F32, Dims: []uint64{3, 2}, Data: gguftest.Floats(1, 2, 3, 4, 5, 6)},
			{Name: "ids", Type: 26, Dims: []uint64{2}, Data: []byte{7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}},
			{Name: "q", Type: gguftest.Q80, Dims: []uint64{32, 1}, Data: append([]byte{0, 0x3c}, make([]byte, 32)...)},
		},
	}
}

// A file without tensors may be padded, as ggml writes it, or not.
func TestGGUFWithoutTensors(t *testing.T) {
	plain := gguftest.File{Metadata: []gguftest.Value{gguftest.KV("general.architecture", "tiny")}}.Bytes()
	padded := append(slices.Clip(plain), make([]byte, -len(plain)&31)...)
	if len(padded) == len(plain) {
		t.Fatalf("found a file of %d bytes, expected one to pad", len(plain))
	}
	for _, c := range []struct {
		content []byte
		want    string
	}{
		{plain, ""}, {padded, ""}, {append(slices.Clip(padded), 0), "data: found 1 bytes, expected the 0 of the tensors"},
	} {
		path := filepath.Join(t.TempDir(), "a.gguf")
		if err := os.WriteFile(path, c.content, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := tensorfile.OpenFile(path, all)
		if c.want != "" {
			if err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("%d bytes: found %v, expected %s", len(c.content), err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%d bytes: %v", len(c.content), err)
			continue
		}
		if s, err := f.Text("general.architecture"); s != "tiny" || err != nil || len(f.Names()) != 0 {
			t.Errorf("%d bytes: found %q, %v, %q, expected the metadata and no tensors", len(c.content), s, err, f.Names())
		}
		f.Close()
	}
}

func TestGGUF(t *testing.T) {
	for name, change := range map[string]func(f *gguftest.File){
		"version 3": func(*gguftest.File) {},
		"version 2": func(f *gguftest.File) { f.Version = 2 },
		"alignment 64": func(f *gguftest.File) {
			f.Alignment = 64
			f.Metadata = append(f.Metadata, gguftest.KV("general.alignment", uint32(64)))
		},
		"alignment 1": func(f *gguftest.File) {
			f.Alignment = 1
			f.Metadata = append(f.Metadata, gguftest.KV("general.alignment", uint32(1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := tiny()
			change(&file)
			path := filepath.Join(t.TempDir(), "blob") // known by its first bytes
			if err := os.WriteFile(path, file.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
			f, err := tensorfile.OpenFile(path, all)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Format != ".gguf" || !slices.Equal(f.Names(), []string{"w", "ids", "q"}) || !f.Has("q") || f.Has("x") {
				t.Errorf("format %q, names %q", f.Format, f.Names())
			}
			for key, want := range map[string]float64{"tiny.layers": 3, "tiny.offset": -5, "tiny.scale": 0.25, "tiny.big": 1 << 40} {
				if x, err := f.Number(key); x != want || err != nil {
					t.Errorf("%s: %v, %v", key, x, err)
				}
			}
			if x, err := f.Number("tiny.none"); x != 0 || err != nil {
				t.Errorf("none: %v, %v", x, err)
			}
			if s, err := f.Text("general.architecture"); s != "tiny" || err != nil {
				t.Errorf("architecture %q, %v", s, err)
			}
			var tokens []string
			if ok, err := f.Strings("tokenizer.ggml.tokens", func(i int, s []byte) {
				if i != len(tokens) {
					t.Errorf("string %d after %d", i, len(tokens))
				}
				tokens = append(tokens, string(s))
			}); !ok || err != nil || !slices.Equal(tokens, []string{"a", "", "ccc"}) {
				t.Errorf("tokens %q, %v, %v", tokens, ok, err)
			}
			w, err := f.Tensor("w")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(w.Shape, []int{2, 3}) || !sameBits(floats(t, w), []float32{1, 2, 3, 4, 5, 6}) {
				t.Errorf("w: %v of %v", floats(t, w), w.Shape)
			}
			ids, err := f.Tensor("ids")
			if err != nil {
				t.Fatal(err)
			}
			if x, err := ids.Int64s(); err != nil || !slices.Equal(x, []int64{7, -1}) {
				t.Errorf("ids: %v, %v", x, err)
			}
			q, err := f.Tensor("q")
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := q.View(); !ok || len(data) != 34 || q.DType != tensorfile.Q8_0 {
				t.Errorf("q: %d bytes of %s, %v", len(data), q.DType, ok)
			}
			if _, err := q.Float32s(); err == nil || !strings.Contains(err.Error(), "found q8_0, expected float16") {
				t.Errorf("q as floats: %v", err)
			}
			x := open(t, path+":w") // as any tensor
			if !sameBits(floats(t, x), []float32{1, 2, 3, 4, 5, 6}) {
				t.Errorf("by its name: %v", floats(t, x))
			}
		})
	}
}

// View and Copy give the bytes of the elements, with any alignment.
func TestViewAndCopy(t *testing.T) {
	for name, c := range map[string]struct {
		file, suffix string
		bytes        []byte
		view, copied bool
		want         []byte
	}{
		"bfloat16":         {"x.safetensors", ":x", safetensors(`{"x":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}   `, u16s(le, 0x3f80, 0x4000)), true, true, u16s(binary.NativeEndian, 0x3f80, 0x4000)},
		"bfloat16, odd":    {"x.safetensors", ":x", append([]byte("\x39\x00\x00\x00\x00\x00\x00\x00"+`{"x":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}`), u16s(le, 0x3f80, 0x4000)...), false, true, u16s(binary.NativeEndian, 0x3f80, 0x4000)},
		"float16":          {"x.npy", "", npy(1, dict("<f2", "False", "(1, 2)"), u16s(le, 1, 2)), true, true, u16s(binary.NativeEndian, 1, 2)},
		"float32, Fortran": {"x.npy", "", npy(1, dict("<f4", "True", "(2, 2)"), f32s(le, 1, 2, 3, 4)), false, false, nil},
		"bytes":            {"x.npy", "", npy(1, dict("|u1", "False", "(3,)"), []byte{1, 2, 3}), true, true, []byte{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			x := open(t, file(t, c.file, c.bytes)+c.suffix)
			if data, ok := x.View(); ok != c.view || ok && !slices.Equal(data, c.want) {
				t.Errorf("View: %x, %v, want %x, %v", data, ok, c.want, c.view)
			}
			if data, ok, err := x.Copy(); ok != c.copied || err != nil || !slices.Equal(data, c.want) {
				t.Errorf("Copy: %x, %v, %v", data, ok, err)
			}
		})
	}
}

// manyShards returns an index of n tensors, each in a file of its own.
func manyShards(n int) string {
	var b strings.Builder
	b.WriteString(`{"weight_map":{`)
	for i := range n {
		fmt.Fprintf(&b, `"%d":"%[1]d.safetensors",`, i)
	}
	return strings.TrimSuffix(b.String(), ",") + "}}"
}

func TestReadIndex(t *testing.T) {
	path := file(t, "model.safetensors.index.json", []byte(`{"metadata":{"total_size":1e3,"more":[null]},"metadata":[],"weight_map":{"a.weight":"model-1.safetensors","b":"model-2.safetensors","\u0063":"model-1.safetensors"}}`+"\n"))
	files, err := tensorfile.ReadIndex(path)
	if err != nil || len(files) != 3 || files["a.weight"] != "model-1.safetensors" || files["b"] != "model-2.safetensors" || files["c"] != "model-1.safetensors" {
		t.Errorf("%v, %v", files, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"a path":          {`{"weight_map":{"w":"../w.safetensors"}}`, `index: weight_map: found the file ../w.safetensors, expected the name of a file in the same folder`},
		"a folder":        {`{"weight_map":{"w":"a/w.safetensors"}}`, `index: weight_map: found the file a/w.safetensors, expected the name of a file in the same folder`},
		"an escaped path": {`{"weight_map":{"w":"\u002e\u002e\/w"}}`, `index: weight_map: found the file ../w, expected the name of a file in the same folder`},
		"another system":  {`{"weight_map":{"w":"C:w.safetensors"}}`, `index: weight_map: found the file C:w.safetensors, expected the name of a file in the same folder`},
		"a stream":        {`{"weight_map":{"w":"a\\b"}}`, `index: weight_map: found the file a\b, expected the name of a file in the same folder`},
		"the folder":      {`{"weight_map":{"w":".."}}`, `index: weight_map: found the file .., expected the name of a file in the same folder`},
		"no name":         {`{"weight_map":{"w":""}}`, `index: weight_map: found the file "", expected the name of a file in the same folder`},
		"a name twice":    {`{"weight_map":{"w":"a","\u0077":"b"}}`, `index: found "w" twice, expected it once`},
		"two maps":        {`{"weight_map":{},"weight_map":{}}`, `index: found "weight_map" twice, expected it once`},
		"no map":          {`{"weights":{"w":"a"}}`, `index: weight_map: found none, expected the file of each tensor`},
		"a number":        {`{"weight_map":{"w":1}}`, `index: found "1", expected a string`},
		"cut":             {`{"weight_map":{"w":"a"}`, `index: found unexpected end of JSON input at byte 22, expected JSON`},
		"more after it":   {`{"weight_map":{"w":"a"}}x`, `index: found invalid character 'x' after top-level value at byte 24, expected JSON`},
		"many files":      {manyShards(10001), `index: weight_map: found more than 10000 files, expected at most 10000`},
		"deep":            {strings.Repeat(`{"a":`, 200), `index: found values within values 101 deep at byte 500, expected at most 100`},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, "x.json", []byte(c.text))
			files, err := tensorfile.ReadIndex(path)
			refuse(t, err, path, "FILE: "+c.want)
			if files != nil {
				t.Errorf("files %v with an error", files)
			}
		})
	}
}

func TestBrokenGGUF(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("the texts name the limits of a 64-bit machine")
	}
	with := func(change func(f *gguftest.File)) []byte {
		f := tiny()
		change(&f)
		return f.Bytes()
	}
	value := func(key string, data any) []byte {
		return with(func(f *gguftest.File) { f.Metadata = append(f.Metadata, gguftest.KV(key, data)) })
	}
	tensor := func(x gguftest.Tensor) []byte {
		return with(func(f *gguftest.File) { f.Tensors = append(f.Tensors, x) })
	}
	patched := func(at int, b ...byte) []byte {
		file := tiny().Bytes()
		copy(file[at:], b)
		return file
	}
	u32 := func(x ...uint32) (b gguftest.Raw) {
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return b
	}
	ones := []byte("\xff\xff\xff\xff\xff\xff\xff\xff")
	good := tiny().Bytes()
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"another magic":           {patched(0, 'g'), `magic: found "gGUF", expected "GGUF"`},
		"half a magic":            {good[:2], `magic: found "GG", expected "GGUF"`},
		"cut in its header":       {good[:23], `header: found a file of 23 bytes, expected at least 24`},
		"version 1":               {patched(4, 1), `version: found 1, expected 2 or 3`},
		"version 4":               {patched(4, 4), `version: found 4, expected 2 or 3`},
		"big-endian":              {patched(4, 0, 0, 0, 3), `version: found 3 in big-endian order, expected a little-endian file`},
		"exabytes of tensors":     {patched(8, ones...), `tensor count: found 18446744073709551615, expected at most 11 in a file of 576 bytes`},
		"exabytes of values":      {patched(16, ones...), `metadata count: found 18446744073709551615, expected at most 42 in a file of 576 bytes`},
		"a long key":              {patched(24, ones...), `metadata: found the end of the file in value 0, expected 8 values`},
		"a value too many":        {patched(16, 9), `tensor 0: found the end of the file, expected its name, shape, type and offset`},
		"an unknown type":         {value("x", u32(13, 0)), `metadata x: found a value of type 13, expected numbers or strings`},
		"a long string":           {value("x", append(u32(8), ones...)), `metadata x: found the end of the file, expected its value`},
		"an array of arrays":      {value("x", append(u32(9, 9), 0, 0, 0, 0, 0, 0, 0, 0)), `metadata x: found an array of type 9, expected numbers or strings`},
		"an array of no type":     {value("x", append(u32(9, 99), 0, 0, 0, 0, 0, 0, 0, 0)), `metadata x: found an array of type 99, expected numbers or strings`},
		"an array of exabytes":    {value("x", append(u32(9, 10), ones...)), `metadata x: found an array of 18446744073709551615, expected at most the 34 that the file has room for`},
		"exabytes of strings":     {value("x", append(u32(9, 8), ones...)), `metadata x: found an array of 18446744073709551615, expected at most the 34 that the file has room for`},
		"a key twice":             {value("tiny.layers", uint32(4)), `metadata: found tiny.layers twice, expected once`},
		"alignment 24":            {value("general.alignment", uint32(24)), `metadata general.alignment: found 24, expected a power of two as uint32`},
		"alignment 0":             {value("general.alignment", uint32(0)), `metadata general.alignment: found 0, expected a power of two as uint32`},
		"alignment of text":       {value("general.alignment", "32"), `metadata general.alignment: found a string, a bool or an array, expected a number`},
		"an alignment of 2 GiB":   {value("general.alignment", uint32(1<<31)), `data: found the end of the file, expected 3 tensors`},
		"five dimensions":         {tensor(gguftest.Tensor{Name: "x", Dims: []uint64{1, 1, 1, 1, 1}}), `tensor 3: found 5 dimensions, expected at most 4`},
		"a dimension beyond int":  {tensor(gguftest.Tensor{Name: "x", Dims: []uint64{1 << 63}}), `tensor 3: x: found a dimension of 9223372036854775808, expected at most 9223372036854775807`},
		"a product beyond int":    {tensor(gguftest.Tensor{Name: "x", Dims: []uint64{1 << 40, 1 << 40}}), `tensor 3: x: found [1099511627776 1099511627776] of float32, expected a size within 9223372036854775807 bytes`},
		"half a block":            {tensor(gguftest.Tensor{Name: "x", Type: gguftest.Q80, Dims: []uint64{16, 2}}), `tensor 3: x: found [2 16] of q8_0, expected rows of a multiple of 32 elements`},
		"a name twice":            {tensor(gguftest.Tensor{Name: "w", Dims: []uint64{1}, Data: gguftest.Floats(1)}), `tensors: found w twice, expected once`},
		"a tensor beyond the end": {tensor(gguftest.Tensor{Name: "x", Dims: []uint64{9}, Data: gguftest.Floats(1)}), `x: data: found 36 bytes at offset 128, expected them within the 160 bytes of data`},
		"an odd offset":           {tensor(gguftest.Tensor{Name: "x", Dims: []uint64{1}, Data: gguftest.Floats(1), Offset: 129}), `x: offset: found 129, expected a multiple of the alignment 32`},
		"an overlap":              {tensor(gguftest.Tensor{Name: "x", Dims: []uint64{1}, Data: gguftest.Floats(1), Offset: 96}), `x: offset: found 96, expected 128, where the tensor before it ends`},
		"a gap":                   {tensor(gguftest.Tensor{Name: "x", Dims: []uint64{1}, Data: gguftest.Floats(1), Offset: 160}), `x: offset: found 160, expected 128, where the tensor before it ends`},
		"an offset of exabytes":   {tensor(gguftest.Tensor{Name: "x", Type: 99, Dims: []uint64{1}, Offset: 1 << 63}), `x: offset: found 9223372036854775808, expected 128, where the tensor before it ends`},
		"bytes after it":          {append(tiny().Bytes(), make([]byte, 40)...), `data: found 168 bytes, expected the 128 of the tensors`},
		"cut in its tensors":      {good[:420], `tensor 2: found the end of the file, expected its name, shape, type and offset`},
		"cut before its data":     {good[:448], `w: data: found 24 bytes at offset 0, expected them within the 0 bytes of data`},
		"cut in its data":         {good[:530], `q: data: found 34 bytes at offset 64, expected them within the 82 bytes of data`},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, "x.gguf", c.file)
			f, err := tensorfile.OpenFile(path, all)
			sep := ": "
			if i := strings.IndexByte(c.want, ':'); i == 1 {
				sep = ":"
			}
			refuse(t, err, path, "FILE"+sep+c.want)
			if f != nil {
				t.Error("a file with an error")
			}
		})
	}
	// The padding after the last tensor may be missing.
	f, err := tensorfile.OpenFile(file(t, "x.gguf", good[:len(good)-30]), nil)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestMetadataOfAnotherType(t *testing.T) {
	path := file(t, "x.gguf", tiny().Bytes())
	f, err := tensorfile.OpenFile(path, all)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Number("general.architecture")
	refuse(t, err, path, "FILE: metadata general.architecture: found a string, a bool or an array, expected a number")
	_, err = f.Text("tiny.layers")
	refuse(t, err, path, "FILE: metadata tiny.layers: found a number or an array, expected a string")
	_, err = f.Strings("tiny.bytes", nil)
	refuse(t, err, path, "FILE: metadata tiny.bytes: found no array of strings, expected one")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = f.Strings("tokenizer.ggml.tokens", nil)
	refuse(t, err, path, "FILE: data: found a closed file, expected an open one")
}

// A file of nothing but short names and values takes memory in proportion: the
// tensors', since the metadata are not kept.
func TestGGUFMemory(t *testing.T) {
	var many gguftest.File
	for i := range 20000 {
		many.Metadata = append(many.Metadata, gguftest.KV(strconv.Itoa(i), true), gguftest.KV("s"+strconv.Itoa(i), []string{"", "x"}))
	}
	few := many
	for i := range 20000 {
		many.Tensors = append(many.Tensors, gguftest.Tensor{Name: strconv.Itoa(i), Type: 24, Dims: []uint64{0}})
	}
	for _, c := range []struct {
		name  string
		bytes []byte
		most  int // times the file's size
	}{
		{"metadata", few.Bytes(), 1}, // which is the file itself if it is not mapped
		{"tensors", many.Bytes(), 16},
	} {
		path := file(t, "x.gguf", c.bytes)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := tensorfile.OpenFile(path, nil)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if used, most := after.TotalAlloc-before.TotalAlloc, uint64(c.most*len(c.bytes)+64<<10); used > most {
			t.Errorf("%s: %d bytes were allocated for a file of %d", c.name, used, len(c.bytes))
		}
	}
}
