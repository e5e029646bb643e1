package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/preview"
)

// The statuses of l2s.h.
const (
	statusOK = iota
	statusArgument
	statusHandle
	statusContext
	statusRequest
	statusLayer
	statusNoTail
	statusTarget
	statusIO
	statusFormat
	statusCancelled
	statusForked
	statusInternal
)

// errArgument is the error of an argument that no layer could have.
type errArgument struct{ text string }

func (e errArgument) Error() string { return e.text }

func invalid(format string, args ...any) error {
	return errArgument{"l2s: " + fmt.Sprintf(format, args...)}
}

func wrongRequest(format string, args ...any) error {
	return kindOf{fmt.Sprintf("l2s: "+format, args...), l2s.ErrRequest}
}

func wrongContext(format string, args ...any) error {
	return kindOf{fmt.Sprintf("l2s: "+format, args...), l2s.ErrContext}
}

// kindOf is an error of a kind of package l2s.
type kindOf struct {
	text string
	kind error
}

func (e kindOf) Error() string { return e.text }
func (e kindOf) Unwrap() error { return e.kind }

// wrongContent is an error of what a file, or a layer in memory, contains.
type wrongContent struct{ error }

func (e wrongContent) Unwrap() error { return e.error }

// inFile is the error of a file: the system's, or of its content.
func inFile(err error) error {
	if err == nil || systems(err) {
		return err
	}
	return wrongContent{err}
}

func systems(err error) bool {
	var number syscall.Errno
	var path *fs.PathError
	return errors.As(err, &number) || errors.As(err, &path)
}

// crashed is a panic.
type crashed struct{ value any }

func (e crashed) Error() string { return fmt.Sprintf("l2s: internal: %v", e.value) }

// statusOf returns the status of an error, and the system's number of it.
func statusOf(err error) (status, number int) {
	var handle errHandle
	var argument errArgument
	var content wrongContent
	var crash crashed
	switch {
	case err == nil:
		return statusOK, 0
	case errors.As(err, &crash):
		return statusInternal, 0
	case errors.As(err, &handle):
		return statusHandle, 0
	case errors.As(err, &argument):
		return statusArgument, 0
	case errors.Is(err, context.Canceled):
		return statusCancelled, 0
	case errors.Is(err, l2s.ErrContext):
		return statusContext, 0
	case errors.Is(err, l2s.ErrRequest):
		return statusRequest, 0
	case errors.Is(err, l2s.ErrLayer):
		return statusLayer, 0
	case errors.Is(err, l2s.ErrNoTail):
		return statusNoTail, 0
	case errors.Is(err, preview.ErrTarget): // train.ErrTarget too
		return statusTarget, 0
	case errors.As(err, &content):
		return statusFormat, 0
	case systems(err):
		var n syscall.Errno
		if errors.As(err, &n) {
			return statusIO, int(n)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return statusIO, int(syscall.ENOENT)
		}
		return statusIO, int(syscall.EIO)
	}
	return statusFormat, 0 // of a file that was cut off, contexts and options of makers
}

// guarded runs f, whose panics and faults of memory become errors.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = crashed{r}
		}
	}()
	return f()
}
