package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// library runs a program in C over libl2s.so: threads search while layers and indexes are swapped and
// closed, and functions get random handles and arguments, in turns. It checks the answers itself, and
// the process does not grow.
func library(ctx context.Context, s *soak) error {
	program := filepath.Join(s.bin, "capi", "test")
	if _, err := os.Stat(program); err != nil {
		fmt.Println("soak: no library: found no", program, "which needs a C compiler")
		return nil
	}
	var output said
	cmd := exec.Command(program, "soak")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	steady, begin := int64(0), time.Now()
	for ctx.Err() == nil {
		select {
		case err := <-gone:
			s.fault("library: it has ended: %v: %.2000s", err, output.String())
			return nil
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		resident := rss(cmd.Process.Pid)
		if steady == 0 && time.Since(begin) > 30*time.Second {
			steady = resident
		}
		if steady > 0 && resident > steady+96<<20 {
			s.fault("library: found %d MiB resident, %d MiB after 30 s", resident>>20, steady>>20)
			steady = resident
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-gone:
		if err != nil {
			s.fault("library: %v: %.2000s", err, output.String())
		}
	case <-time.After(3 * time.Minute):
		s.fault("library: found it running 3 minutes after SIGTERM")
		cmd.Process.Kill()
	}
	for line := range strings.Lines(output.String()) {
		var answers, swaps int
		if n, _ := fmt.Sscanf(line, "threads: %d answers, %d swaps", &answers, &swaps); n == 2 {
			s.count("answers of the library", answers)
			s.count("swaps of the library", swaps)
		}
	}
	return nil
}
