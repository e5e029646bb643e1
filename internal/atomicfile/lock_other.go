//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import (
	"errors"
	"os"
)

func lock(*os.File) (taken bool, err error) { return false, errors.ErrUnsupported }

func openLeft(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func openLock(string) (*os.File, error) { return os.Open(os.DevNull) }
