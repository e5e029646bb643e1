package main

import (
	"context"
	"io"
	"os"
)

// waiting returns what f returns, or the error of ctx as soon as that ends. It is for
// reading files that may be pipes, on which f waits however long the other end takes.
// What f does after the end of ctx is in vain: it must write nothing.
func waiting[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// loading is waiting for a reader of a file.
func loading[T any](ctx context.Context, load func(path string) (T, error), path string) (T, error) {
	return waiting(ctx, func() (T, error) { return load(path) })
}

// reading reads a file that may be a pipe: what waits for it ends with ctx, with its error. The
// file is read in the background, since a read of a pipe cannot be ended, to its end or until
// the reader is closed, and then closed. waits, unless nil, is called before each read that
// may have to wait; if it returns an error, the read does in its place.
func reading(ctx context.Context, file *os.File, waits func() error) io.ReadCloser {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		_, err := io.Copy(w, file)
		file.Close()
		w.CloseWithError(err)
	}()
	return waitingReader{r, waits}
}

type waitingReader struct {
	*io.PipeReader
	waits func() error
}

func (r waitingReader) Read(p []byte) (int, error) {
	if r.waits != nil {
		if err := r.waits(); err != nil {
			return 0, err
		}
	}
	return r.PipeReader.Read(p)
}
