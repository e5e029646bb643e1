package mem

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// OpenFile maps a regular file, or reads it if it cannot be mapped. Others are refused, since a pipe or
// a device has no known size. Call unmap with data after the last read; unmap is nil for memory of
// the Go heap. An error does not name the file.
func OpenFile(path string) (data []byte, unmap func([]byte) error, err error) {
	// Looked at before it is opened, since that would wait for the other end of a pipe.
	if err := regular(os.Stat(path)); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, cause(err)
	}
	defer f.Close()
	return MapFile(f)
}

// MapFile is OpenFile for a file that is open. It may be closed when MapFile returns.
func MapFile(f *os.File) (data []byte, unmap func([]byte) error, err error) {
	info, err := f.Stat()
	if err := regular(info, err); err != nil {
		return nil, nil, err
	}
	size := info.Size()
	if int64(int(size)) != size {
		return nil, nil, fmt.Errorf("size: found %d bytes, expected a size that this machine can address", size)
	}
	if size == 0 {
		return nil, nil, nil
	}
	if data, unmap := mapFile(f, int(size)); data != nil {
		advise(data)
		return data, unmap, nil
	}
	data = make([]byte, size)
	_, err = io.ReadFull(io.NewSectionReader(f, 0, size), data)
	return data, nil, cause(err)
}

// ReadFile is OpenFile for a file that is read, not mapped.
func ReadFile(path string) ([]byte, error) {
	if err := regular(os.Stat(path)); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	return data, cause(err)
}

// cause returns the error of the system, without a name of the file.
func cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func regular(info os.FileInfo, err error) error {
	switch {
	case err != nil:
		return cause(err)
	case info.IsDir():
		return fmt.Errorf("found a folder, expected a file")
	case !info.Mode().IsRegular():
		return fmt.Errorf("found a device or pipe, expected a regular file")
	}
	return nil
}
