//go:build unix

package main

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pipe into which nobody writes does not keep a run from its end, wherever it stands.
func TestAnInterruptEndsTheWaitForAPipe(t *testing.T) {
	need(t)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, args := range [][]string{
		{"generate", "--model", gguf, "--file", pipe},
		{"generate", "--model", pipe, "--prompt", "a"},
		{"generate", "--model", gguf, "--prompt", "a", "--screen", pipe},
		{"generate", "--model", gguf, "--prompt", "a", "--head", pipe + ".gguf"},
		{"compare", "--model", gguf, "--text", pipe},
		{"bench", "--model", gguf, "--learn", "--text", pipe},
	} {
		want, word := 130, "interrupted"
		if strings.HasSuffix(args[len(args)-1], ".gguf") && args[len(args)-1] != gguf { // heads of pipes are refused
			want, word = 1, "pipe"
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		ended, stop := context.WithCancel(context.Background())
		context.AfterFunc(ctx, stop) // as a signal does
		done := make(chan string, 1)
		go func() { _, text := runs(t, ended, want, args...); done <- text }()
		select {
		case text := <-done:
			if !strings.Contains(text, word) {
				t.Errorf("%v: found %q, expected %q", args, text, word)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%v: found it waiting a minute after the interrupt", args)
		}
		cancel()
		stop()
	}
	for _, name := range []string{pipe, "/dev/null", dir} {
		if _, text := runs(t, context.Background(), 1, "contexts", "--model", gguf, "--out", filepath.Join(dir, "h"), "--targets", filepath.Join(dir, "t"), "--text", name); !strings.Contains(text, "expected a") {
			t.Errorf("%s: found %q, expected a regular file to be asked for", name, text)
		}
	}
}
