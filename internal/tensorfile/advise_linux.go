package tensorfile

import "syscall"

func advise(pages []byte) error { return syscall.Madvise(pages, syscall.MADV_DONTNEED) }
