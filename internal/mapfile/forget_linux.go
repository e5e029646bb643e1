package mapfile

import (
	"os"
	"syscall"
	"unsafe"
)

// Forget takes the whole pages within data, which must be mapped, out of the program's memory.
// They are read again from the file where they are looked at again.
func Forget(data []byte) {
	page := os.Getpagesize()
	from := int(-uintptr(unsafe.Pointer(unsafe.SliceData(data))) % uintptr(page))
	if whole := (len(data) - from) / page * page; whole > 0 {
		_ = syscall.Madvise(data[from:][:whole], syscall.MADV_DONTNEED)
	}
}
