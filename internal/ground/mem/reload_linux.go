//go:build amd64 || arm64

package mem

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// Advices, and the numbers of fadvise, sync_file_range and the scan of a page map.
const (
	madvPopulateRead = 22 // from Linux 5.14 on
	fadvDontNeed     = 4
	writeAndWait     = 7
	pageIsHuge       = 1 << 6
	pagemapScan      = 0xc0606610 // from Linux 6.7 on
)

// span is a part of the memory, in addresses.
type span struct{ start, end uintptr }

// reload does the work of Reload for the whole large pages within x.
func reload(x []byte) {
	first := int(-uintptr(unsafe.Pointer(&x[0])) % hugePage)
	whole := (len(x) - first) &^ (hugePage - 1)
	if whole <= 0 {
		return
	}
	x = x[first : first+whole]
	start := uintptr(unsafe.Pointer(&x[0]))
	path, offset, ok := fileOf(start, start+uintptr(whole))
	if !ok || offset%hugePage != 0 {
		return
	}
	_ = syscall.Madvise(x, madvHugepage)
	if syscall.Madvise(x, madvPopulateRead) != nil {
		return // of an old system, or the file is shorter
	}
	small, ok := smallPages(x)
	if !ok || len(small) == 0 {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	again := func(s span) {
		part := x[s.start-start : s.end-start]
		at := offset + int64(s.start-start)
		_ = syscall.Madvise(part, syscall.MADV_DONTNEED)
		_ = syscall.SyncFileRange(int(f.Fd()), at, int64(len(part)), writeAndWait)
		_, _, _ = syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), uintptr(at), uintptr(len(part)), fadvDontNeed, 0, 0)
		_ = syscall.Madvise(part, madvPopulateRead)
	}
	// A file system without large pages, or another program that has mapped the file, keeps the
	// small ones: three of them tell.
	for _, i := range []int{0, len(small) / 2, len(small) - 1} {
		s := span{small[i].start, small[i].start + hugePage}
		again(s)
		if left, ok := smallPages(x[s.start-start : s.end-start]); ok && len(left) == 0 {
			for _, s := range small {
				again(s)
			}
			return
		}
	}
}

// fileOf returns the path of the file that is mapped from start to end, to be read alone and
// shared with others, which so has no changes to lose, and the place of start in it.
func fileOf(start, end uintptr) (path string, offset int64, ok bool) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return "", 0, false
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// from-to permissions offset device inode path
		line := lines.Text()
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		low, err1 := strconv.ParseUint(from, 16, 64)
		high, err2 := strconv.ParseUint(to, 16, 64)
		at, err3 := strconv.ParseInt(fields[2], 16, 64)
		if err1 != nil || err2 != nil || err3 != nil || uint64(start) < low || uint64(end) > high {
			continue
		}
		name := strings.IndexByte(line, '/')
		if fields[1] != "r--s" || name < 0 {
			return "", 0, false
		}
		return line[name:], at + int64(uint64(start)-low), true
	}
	return "", 0, false
}

// smallPages returns the parts of x, whole large pages, that are not on a large page. It reports
// false if the system does not tell.
func smallPages(x []byte) (small []span, ok bool) {
	pages, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil, false
	}
	defer pages.Close()
	start := uintptr(unsafe.Pointer(&x[0]))
	end := start + uintptr(len(x))
	var found [64]struct{ start, end, categories uint64 }
	var pin runtime.Pinner // its address is a number to the compiler
	pin.Pin(&found)
	defer pin.Unpin()
	at := start
	for at < end {
		arg := struct {
			size, flags, start, end, walkEnd, vec, vecLen, maxPages, inverted, mask, any, returned uint64
		}{size: 96, start: uint64(at), end: uint64(end), vec: uint64(uintptr(unsafe.Pointer(&found))), vecLen: uint64(len(found)), mask: pageIsHuge, returned: pageIsHuge}
		n, _, e := syscall.Syscall(syscall.SYS_IOCTL, pages.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg)))
		if e != 0 || int(n) > len(found) {
			return nil, false
		}
		for _, large := range found[:n] {
			if uintptr(large.start) > at {
				small = append(small, span{at, uintptr(large.start)})
			}
			at = max(at, uintptr(large.end))
		}
		if int(n) < len(found) { // no more
			break
		}
	}
	if at < end {
		small = append(small, span{at, end})
	}
	return small, true
}
