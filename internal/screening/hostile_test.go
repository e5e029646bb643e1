package screening

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
)

// A record of a few bytes a level would take many times its size to be shown.
func TestDeepRecordsAreRefused(t *testing.T) {
	nested := func(deep int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", deep-1) + `"\"[[["` + strings.Repeat("]", deep-1) + "}")
	}
	c := Config{Dim: 1, Labels: 2, Clusters: []float32{1}, Lists: []List{{IDs: []uint32{0}}}}
	c.Record = nested(maxDepth)
	if _, err := NewModel(c); err != nil {
		t.Errorf("%d deep: %v", maxDepth, err)
	}
	c.Record = nested(maxDepth + 1)
	if _, err := NewModel(c); err == nil || !strings.Contains(err.Error(), "record: found values within values 33 deep") {
		t.Errorf("%d deep: error %v", maxDepth+1, err)
	}
}

// A stream has no size to compare with the sizes in a header: it must not be read without end.
func TestAStreamOfAHugeSizeIsNotRead(t *testing.T) {
	header := make([]byte, headerSize)
	copy(header, magic)
	binary.LittleEndian.PutUint32(header[8:], version)
	binary.LittleEndian.PutUint64(header[atSize:], 1<<63)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		defer w.Close()
		n, _ := w.Write(header)
		for err := error(nil); err == nil; {
			var more int
			more, err = w.Write(make([]byte, 1<<16))
			n += more
		}
		ended <- n
	}()
	if _, err := load(r); err == nil || !strings.Contains(err.Error(), "file size: found 9223372036854775808 in the header") {
		t.Errorf("error %v", err)
	}
	r.Close()
	if n := <-ended; n > 1<<20 {
		t.Errorf("%d bytes were read", n)
	}
}
