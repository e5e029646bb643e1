package mapfile

import "syscall"

func forget(pages []byte) { _ = syscall.Madvise(pages, syscall.MADV_DONTNEED) }
