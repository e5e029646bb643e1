// Package testlib has llama.cpp's libraries for tests.
package testlib

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Get returns the folder of the libraries: the one that YZMA_LIB names, or root/bin/llama,
// into which the script fetches them once. Tests of several packages may ask at once: the
// folder appears when it is complete.
func Get(script, root string) (string, error) {
	if folder := os.Getenv("YZMA_LIB"); folder != "" {
		return folder, nil
	}
	folder, err := filepath.Abs(filepath.Join(root, "bin", "llama"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(folder, "ready")); err == nil {
		return folder, nil
	}
	if _, err := os.Stat(script); err != nil {
		return "", fmt.Errorf("YZMA_LIB names no folder of llama.cpp's libraries, and found no %s", script)
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o777); err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(filepath.Dir(folder), "llama-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	if text, err := exec.Command(script, part).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s failed: %w: %s", script, err, text)
	}
	if err := os.Rename(part, folder); err != nil {
		if _, there := os.Stat(filepath.Join(folder, "ready")); there != nil { // nor has another test put it there
			return "", err
		}
	}
	return folder, nil
}

// Bools writes a GGUF file to the folder that is another file with some bools of its metadata
// changed, and returns its path.
func Bools(folder, file string, values map[string]bool) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for name, on := range values {
		const boolean = 7 // enum gguf_metadata_value_type
		key := binary.LittleEndian.AppendUint64(nil, uint64(len(name)))
		key = binary.LittleEndian.AppendUint32(append(key, name...), boolean)
		at := bytes.Index(b, key)
		if at < 0 {
			return "", fmt.Errorf("%s: found no bool %s", file, name)
		}
		b[at+len(key)] = 0
		if on {
			b[at+len(key)] = 1
		}
	}
	to := filepath.Join(folder, filepath.Base(file))
	return to, os.WriteFile(to, b, 0o600)
}
