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

// input is a file to read, which may be a pipe: what waits for it ends with ctx.
type input struct {
	*os.File
	ctx     context.Context
	regular bool
	buffer  []byte
	rest    []byte // of the buffer, not yet read
}

// openInput opens a file to read.
func openInput(ctx context.Context, path string) (*input, error) {
	file, err := loading(ctx, os.Open, path)
	if err != nil {
		return nil, err
	}
	return newInput(ctx, file), nil
}

func newInput(ctx context.Context, file *os.File) *input {
	info, err := file.Stat()
	return &input{File: file, ctx: ctx, regular: err == nil && info.Mode().IsRegular()}
}

// Read reads from the file, or returns the error of the context. A read that waits
// still when the context ends keeps the buffer, not p.
func (f *input) Read(p []byte) (int, error) {
	if f.regular {
		return f.File.Read(p)
	}
	if len(f.rest) == 0 {
		if err := f.ctx.Err(); err != nil {
			return 0, err
		}
		if f.buffer == nil {
			f.buffer = make([]byte, 1<<16)
		}
		n, err := waiting(f.ctx, func() (int, error) { return f.File.Read(f.buffer) })
		if f.rest = f.buffer[:n]; n == 0 {
			return 0, err
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// WriteTo keeps io.Copy from reading the file itself.
func (f *input) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{f})
}

// Close closes a regular file. What may still wait for another one is left to the
// end of the program, since to close it would wait too.
func (f *input) Close() error {
	if !f.regular {
		return nil
	}
	return f.File.Close()
}
