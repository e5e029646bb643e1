package cmdline

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

// The end of the terminal is an interrupt, unless the caller has switched it off, as nohup does.
func TestInterrupts(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		if !signal.Ignored(s) && !slices.Contains(Interrupts(), s) {
			t.Errorf("found no %v in %v", s, Interrupts())
		}
	}
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Ignore(syscall.SIGHUP)
		defer signal.Reset(syscall.SIGHUP)
	}
	if slices.Contains(Interrupts(), os.Signal(syscall.SIGHUP)) {
		t.Error("found the end of the terminal, expected it left out where it is switched off")
	}
}
