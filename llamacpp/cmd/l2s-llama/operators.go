package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
)

// keyVariable names the keys of a server in the environment, which other users cannot read.
const keyVariable = "L2S_API_KEY"

// mostKeys bounds the file of --api-key-file.
const mostKeys = 1 << 20

// access are the flags for who may ask.
type access struct{ keys, file, origins string }

func (f *flags) access() *access {
	a := &access{}
	f.StringVar(&a.keys, "api-key", "", "`keys`, with commas, of which a request has one; ps shows it: use "+keyVariable)
	f.StringVar(&a.file, "api-key-file", "", "a `file` of such keys, one on a line")
	f.StringVar(&a.origins, "cors", "", "`origins` whose pages may ask, with commas, as https://app.example; * is all")
	return a
}

// read reads keys and origins.
func (a *access) read(o *openai.Options) error {
	add := func(name, list, between string) error {
		for key := range strings.SplitSeq(list, between) {
			if key = strings.TrimSpace(key); key == "" || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				return wrongUse("%s: found a key that is empty or has control characters, expected keys of one character or more", name)
			}
			o.Keys = append(o.Keys, key)
		}
		return nil
	}
	for _, of := range []struct{ name, list string }{{"--api-key", a.keys}, {keyVariable, os.Getenv(keyVariable)}} {
		if of.list != "" {
			if err := add(of.name, of.list, ","); err != nil {
				return err
			}
		}
	}
	if a.file != "" {
		in, err := os.Open(a.file)
		if err != nil {
			return err
		}
		defer in.Close()
		text, err := io.ReadAll(io.LimitReader(in, mostKeys+1))
		switch {
		case err != nil:
			return err
		case len(text) > mostKeys:
			return fmt.Errorf("--api-key-file: %s: found more than %d bytes, expected keys, one on a line", a.file, mostKeys)
		}
		if err := add("--api-key-file: "+a.file, strings.TrimSpace(string(text)), "\n"); err != nil {
			return err
		}
	}
	if a.origins == "" {
		return nil
	}
	for origin := range strings.SplitSeq(a.origins, ",") {
		origin = strings.TrimSpace(origin)
		if err := openai.CheckOrigin(origin); err != nil {
			return wrongUse("--cors: found %q, expected the origin of a page, such as https://app.example: %v", origin, err)
		}
		if origin == "*" && len(o.Keys) == 0 {
			return wrongUse("--cors: found * without a key, expected --api-key too: every page that this machine's browsers open could ask")
		}
		o.Origins = append(o.Origins, origin)
	}
	return nil
}

// logger returns the log of requests in a format, nil for none, on standard error. In JSON all other
// messages are lines of it.
func (f *flags) logger(format string) *slog.Logger {
	switch {
	case format == "json":
		log := slog.New(slog.NewJSONHandler(f.stderr, nil))
		f.stderr = &logLines{log: log}
		return log
	case format == "text" || format == "" && !f.quiet:
		return slog.New(slog.NewTextHandler(f.stderr, nil))
	}
	return nil
}

// logLines logs what is written to it, by lines.
type logLines struct {
	mu   sync.Mutex
	log  *slog.Logger
	part []byte // of a line
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		line, rest, whole := bytes.Cut(l.part, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.log.Info(string(line))
		l.part = append(l.part[:0], rest...)
	}
}

// busyAtStart is the hint for a machine whose CPUs are busy when a server starts.
const busyAtStart = "other programs use the CPUs: threads that wait for one hold the others up; --threads N, one per idle CPU, is faster\n"

// spun is the time for which spin looks at the CPUs.
const spun = 100 * time.Millisecond

// spin has threads that do nothing but run, for a moment, and returns the share of the time that these
// had a CPU; 1 if the system does not tell.
func spin(threads int) float64 {
	start, cpu := time.Now(), cpuTime()
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			for n := 0; time.Since(start) < spun; n++ {
			}
		})
	}
	all.Wait()
	if cpu = cpuTime() - cpu; cpu <= 0 {
		return 1
	}
	return float64(cpu) / float64(time.Duration(threads)*time.Since(start))
}

// waits reports whether threads with a share of their CPUs wait for these, and for each other.
func waits(threads int, share float64) bool { return threads > 1 && share < 0.75 }
