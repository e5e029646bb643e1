package tensorfile

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/learning-to-screen/l2s/internal/fault"
)

// memory is the bytes of an open file.
type memory struct {
	mu     sync.RWMutex // held for reading by who reads data, for writing by close
	data   []byte
	unmap  func([]byte) error // nil for memory of the Go heap
	closed bool
}

func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	data := m.data
	m.data = nil
	if m.unmap == nil || data == nil {
		return nil
	}
	return m.unmap(data)
}

// openFile maps a regular file, or reads it where it cannot be mapped. Others
// are refused: of a pipe or a device the size is not known.
func openFile(path string) (*memory, error) {
	// Looked at before it is opened, since that would wait for the other end
	// of a pipe.
	info, err := os.Stat(path)
	if err == nil {
		err = regular(info)
	}
	if err != nil {
		return nil, openError(path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, openError(path, err)
	}
	defer f.Close()
	info, err = f.Stat()
	if err == nil {
		err = regular(info)
	}
	if err != nil {
		return nil, openError(path, err)
	}
	size := info.Size()
	if int64(int(size)) != size {
		return nil, fail(path, "size", "found %d bytes, expected at most what this machine can address", size)
	}
	if size == 0 {
		return &memory{}, nil
	}
	mem, err := mapFile(f, int(size))
	if err != nil {
		return nil, openError(path, err)
	}
	return mem, nil
}

func regular(info os.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("found a folder, expected a file")
	case !info.Mode().IsRegular():
		return fmt.Errorf("found a device or pipe, expected a regular file")
	}
	return nil
}

// guard runs f, which reads mapped memory: that a page of it is no longer there
// is an error.
func guard(source string, f func() error) error {
	return fault.Guard(f, func() error {
		return fail(source, "data", "found bytes that cannot be read any more, expected a file that stays as it was opened")
	})
}

func (t *Tensor) guard(f func() error) error {
	return t.reading(func() error { return guard(t.source, f) })
}

func readFile(f *os.File, size int) (*memory, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return &memory{data: data}, nil
}

// Parse calls parse with the content of a regular file, of which it must keep no
// part. The file is mapped where the system can; a page of it that is no longer
// there is an error, of which the rest of parse is not run.
func Parse(path string, parse func(data []byte) error) error {
	mem, err := openFile(path)
	if err != nil {
		return err
	}
	defer mem.close()
	return guard(path, func() error { return parse(mem.data) })
}
