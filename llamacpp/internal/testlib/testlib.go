// Package testlib has llama.cpp's libraries for tests.
package testlib

import (
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
