package cmdline

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Interrupts returns the signals that end a run without losses: the request to end, and, unless the
// caller has switched them off, the interrupt key and the end of the terminal. Nohup switches off
// the last.
func Interrupts() []os.Signal {
	fromTerminal := []os.Signal{os.Interrupt, syscall.SIGHUP}
	return append(slices.DeleteFunc(fromTerminal, signal.Ignored), syscall.SIGTERM)
}
