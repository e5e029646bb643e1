//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp"
)

// A pipe into which nobody writes does not keep a run from ending, whichever file it is.
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
		{"generate", "--model", gguf, "--prompt", "a", "--ban", "@" + pipe},
	} {
		want, word := 130, "interrupted"
		if args[2] == pipe || slices.Contains(args, "--screen") || slices.Contains(args, "--head") { // heads, models and screens of pipes are refused
			want, word = 1, "pipe"
		}
		ctx, cancel := context.WithCancel(context.Background())
		if want == 130 {
			ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		}
		ended, stop := context.WithCancel(context.Background())
		context.AfterFunc(ctx, stop) // as a signal does
		done := make(chan string, 1)
		go func() { _, text := runs(t, ended, want, args...); done <- text }()
		select {
		case text := <-done:
			if !strings.Contains(text, word) {
				t.Errorf("%v: found %q, expected %q", args, text, word)
			}
		case <-time.After(10 * time.Minute):
			t.Fatalf("%v: found it waiting ten minutes after the interrupt", args)
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

// The file of a preview may have any content: a start reports a file that is no preview, and makes
// one.
func TestWhatIsNoPreviewFile(t *testing.T) {
	need(t)
	model := fastModel(t)
	put := map[string]func(path string) error{
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a loop":   func(path string) error { return os.Symlink(path, path) },
		"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	}
	for name, put := range put {
		path := model + ".l2p"
		if err := put(path); err != nil {
			t.Skip(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		f := newFlags("serve", serveUsage, io.Discard, stopsAt{path, stop})
		f.model, f.fast = model, true
		// It is stopped when it has named the file, and would make a preview then.
		if _, err := f.open(ctx, llamacpp.Options{}); !errors.Is(err, context.Canceled) || f.preview != nil {
			t.Errorf("%s: found the error %v and a preview: %v, expected one to be made", name, err, f.preview != nil)
		}
		if !strings.Contains(f.refused, path) {
			t.Errorf("%s: found %q, expected the file to be named", name, f.refused)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// stopsAt stops when a text comes.
type stopsAt struct {
	text string
	stop func()
}

func (s stopsAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.stop()
	}
	return len(p), nil
}

// The port of a server is open before it has read anything, and the end of the server does not wait
// for what it reads.
func TestThePortIsOpenAtOnce(t *testing.T) {
	need(t)
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := runServe(ctx, []string{"--model", gguf, "--threads", "1", "--addr", "127.0.0.1:0", "--fast", "--text", pipe}, io.Discard, w)
		w.Close()
		ended <- err
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	addr, _, found := strings.Cut(strings.TrimPrefix(line, "the port is open, "), ": ")
	if err != nil || !found {
		t.Fatalf("found %q, %v, expected the address", line, err)
	}
	go io.Copy(io.Discard, r)
	for _, path := range []string{"/health", "/v1/models", "/metrics"} {
		a, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if a.StatusCode != 503 || a.Header.Get("Retry-After") == "" || !strings.Contains(string(text), `"code":"starting"`) {
			t.Errorf("%s: found %d, %v and %s, expected 503, and that the server begins", path, a.StatusCode, a.Header, text)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("found the error %v at the end, expected an interrupt", err)
	}
}
