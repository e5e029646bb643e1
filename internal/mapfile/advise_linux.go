package mapfile

import "syscall"

func forget(pages []byte) { _ = syscall.Madvise(pages, syscall.MADV_DONTNEED) }

// willNeed reads pages that are not in memory. Before Linux 5.14 the advice is not
// known, and each read faults.
func willNeed(pages []byte) {
	const madvPopulateRead = 22
	_ = syscall.Madvise(pages, madvPopulateRead)
}
