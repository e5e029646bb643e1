package measure

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/learning-to-screen/l2s/internal/progress"
)

// PauseUsage is the help of the flag --pause of a command that calls [Pause].
const PauseUsage = "wait for a line on the standard input before the times are measured, for which the machine should be idle"

// Pause prints that all is ready for the times, and waits for a line of r. It returns an error if r
// or ctx ends before.
func Pause(ctx context.Context, r io.Reader, p *progress.Printer) error {
	p.Line("all else is done: leave the machine idle, and press Enter to measure the times")
	read := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(r).ReadString('\n')
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil {
			return fmt.Errorf("--pause: standard input: found no line, expected one: %w", err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
