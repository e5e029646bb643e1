//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import (
	"errors"
	"os"
)

const (
	locks  = false
	asItIs = 0
)

func again(*os.File) (*os.File, error) { return nil, nil }

func lock(*os.File) (taken bool, err error) { return false, errors.ErrUnsupported }
