package tensorfile

import (
	"sync"

	"github.com/learning-to-screen/l2s/internal/fault"
	"github.com/learning-to-screen/l2s/internal/mapfile"
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
	data := m.data
	m.data, m.closed = nil, true
	if m.unmap == nil || data == nil {
		return nil
	}
	return m.unmap(data)
}

// guard runs f, which reads mapped memory: that a page of it is no longer there
// is an error.
func guard(source string, f func() error) error {
	return fault.Guard(f, func() error {
		return fail(source, "data", "found bytes that cannot be read any more, expected a file that stays as it was opened")
	})
}

// read is guard with the file open all the while.
func (m *memory) read(source string, f func() error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return fail(source, "data", "found a closed file, expected an open one")
	}
	return guard(source, f)
}

// ReadFile reads a regular file into memory.
func ReadFile(path string) ([]byte, error) {
	data, err := mapfile.Read(path)
	if err != nil {
		return nil, openError(path, err)
	}
	return data, nil
}
