package main

import (
	"fmt"
	"os"
	"syscall"
)

// mount puts a file system in memory, of size bytes, on a new folder.
func mount(folder string, size int) (string, func(), error) {
	if err := os.Mkdir(folder, 0o777); err != nil {
		return "", nil, err
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dk", size>>10)); err != nil {
		return "", nil, err
	}
	return folder, func() { syscall.Unmount(folder, 0) }, nil
}
