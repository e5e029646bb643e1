package llamacpp

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dropResident removes the pages of a file that are mapped for reading from the memory of this
// process. They stay in the cache of the system, and come back when they are read: so the rows of a
// head that llama.cpp has also mapped, and does not read, count once. If it cannot, it does
// nothing.
func dropResident(path string) {
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// start-end permissions offset device inode path. Pages that are shared and only read have
		// no changes to lose.
		line := lines.Text()
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "r--s" || !strings.HasSuffix(line, " "+path) {
			continue
		}
		first, last, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(first, 16, 64)
		end, err2 := strconv.ParseUint(last, 16, 64)
		if err1 == nil && err2 == nil {
			// An error, as of pages that are locked, leaves them where they are.
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), syscall.MADV_DONTNEED)
		}
	}
}
