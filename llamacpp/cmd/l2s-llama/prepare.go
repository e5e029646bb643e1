package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
)

const prepareUsage = `
l2s-llama prepare --model M.gguf [flags]

Makes the preview that --fast of all verbs takes, in a minute or two, and keeps it in M.gguf.l2p, or
in the user's cache: for an image, or before a server starts. It prints the name of the file. A run
that was interrupted or killed goes on with the states that it has kept in M.gguf.l2p.states.`

// prepared is a line of prepare --json: progress, or at the end the file.
type prepared struct {
	Stage string  `json:"stage,omitempty"`
	Done  float64 `json:"done"` // the share, 0 to 1
	File  string  `json:"file,omitempty"`
}

func runPrepare(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("prepare", prepareUsage, stdout, stderr)
	f.fast = true
	f.BoolVar(&f.anew, "anew", false, "make the preview anew")
	f.StringVar(&f.head, "head", "", "the `source` of the head, if not the model's own files")
	f.StringVar(&f.text, "text", "", "a `file` of text like that to come, for the preview too")
	asJSON := f.Bool("json", false, "write the progress, and at last the file, as lines of JSON")
	way := f.Bool("give-way", false, "take the CPU time that all other programs leave")
	if err := f.parse(args); err != nil {
		return err
	}
	if *way {
		giveWay()
	}
	out := json.NewEncoder(stdout)
	if *asJSON {
		last := time.Time{}
		f.tell = func(stage string, done float64) {
			if now := time.Now(); now.Sub(last) > time.Second/2 {
				last = now
				_ = out.Encode(prepared{Stage: stage, Done: done})
			}
		}
	}
	m, err := f.open(ctx, llamacpp.Options{Context: 1})
	if err != nil {
		return err
	}
	defer f.closes(m)
	x, err := f.openHead(ctx, m, previewHead) // which makes it anew if it is of another layer
	if err != nil {
		return err
	}
	defer f.closes(nil, x)
	if f.previewFile == inMemory {
		return fmt.Errorf("found no folder to keep the preview in, expected the model's, or the user's cache, to be writable")
	}
	f.say("%s: %s\n", f.previewFile, f.measured())
	if *asJSON {
		return out.Encode(prepared{Done: 1, File: f.previewFile})
	}
	_, err = fmt.Fprintln(stdout, f.previewFile)
	return err
}

// maker makes the preview of a server beside its requests, in a process of its own, of the lowest
// priority: it has the CPU time that the requests leave, and its memory is free at its end.
type maker struct {
	f     *flags
	s     *openai.Server
	x     *llamacpp.Head // exact, over whose layer the preview answers
	start time.Time
	first float64 // the share that was done when this run began
	told  bool
}

// run makes the preview, and changes the server over to it. A server whose preview is not made, for
// whatever reason, goes on by the exact layer.
func (k *maker) run(ctx context.Context) (err error) {
	f := k.f
	k.start = time.Now()
	k.s.Prepare(&openai.Preparing{Stage: "starting"})
	defer k.s.Prepare(nil)
	if f.keepable() {
		err = k.process(ctx)
	} else { // nobody could hand the preview over
		f.tell = k.tell
		if err = f.knowBody(ctx); err == nil {
			err = f.newPreview(ctx, f.anew)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	y, err := k.x.With(f.preview, l2s.Options{Budget: f.budget})
	if err != nil {
		return fmt.Errorf("%s: %w", f.previewFile, err)
	}
	k.s.Use(y)
	f.say("head: %s\n", f.named(previewHead))
	return nil
}

// keepable reports whether a folder can keep the preview.
func (f *flags) keepable() bool {
	return slices.ContainsFunc(f.previewPaths(), func(path string) bool {
		return ownPreview(path) == nil && cmdline.CheckWritable([]cmdline.Output{{Path: path}}) == nil
	})
}

// process runs l2s-llama prepare, and reads the preview.
func (k *maker) process(ctx context.Context) error {
	f := k.f
	own, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"prepare", "--json", "--give-way", "--model", f.model}
	for _, flag := range [][2]string{{"--lib", f.lib}, {"--head", f.head}} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	if f.threads > 0 {
		args = append(args, "--threads", strconv.Itoa(f.threads))
	}
	if f.anew {
		args = append(args, "--anew")
	}
	if f.quiet {
		args = append(args, "--quiet")
	}
	cmd := exec.CommandContext(ctx, own, args...)
	if f.given != "" {
		cmd.Args = append(cmd.Args, "--text", "-")
		cmd.Stdin = strings.NewReader(f.given)
	}
	cmd.Cancel = func() error { return interrupt(cmd.Process) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = f.stderr
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var last prepared
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // with which the system ends the process
		defer runtime.UnlockOSThread()
		endsWith(cmd)
		if failed = cmd.Start(); failed != nil {
			return
		}
		for in := bufio.NewScanner(lines); in.Scan(); {
			if json.Unmarshal(in.Bytes(), &last) == nil && last.File == "" {
				k.tell(last.Stage, last.Done)
			}
		}
		failed = cmd.Wait()
	}()
	<-done
	switch {
	case failed != nil:
		return fmt.Errorf("l2s-llama prepare: %w", failed)
	case last.File == "":
		return errors.New("l2s-llama prepare: found no file at its end")
	}
	f.foreign, f.refused = nil, "" // it has replaced them
	if err := f.knowBody(ctx); err != nil {
		return err
	}
	if f.preview, f.previewFile = f.readPreview(); f.preview == nil {
		return fmt.Errorf("%s: found no preview of this model, expected one", last.File)
	}
	return nil
}

// tell notes the progress for /health and /metrics.
func (k *maker) tell(stage string, done float64) {
	if !k.told {
		k.told, k.first = true, done
	}
	p := &openai.Preparing{Stage: stage, Done: done}
	if took := time.Since(k.start).Seconds(); done-k.first > 0.01 && took > 1 {
		left := took * (1 - done) / (done - k.first)
		p.Seconds = &left
	}
	k.s.Prepare(p)
}
