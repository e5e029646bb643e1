package measure_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
)

// With --pause nothing is measured before the line, and an end of the input is no line.
func TestPauseWaitsForALine(t *testing.T) {
	for name, c := range map[string]struct {
		input string
		want  string // in the error, empty for none
	}{
		"a line":            {"\n", ""},
		"a line with words": {"go on\nmore", ""},
		"no end of a line":  {"go on", "--pause"},
		"nothing":           {"", "--pause"},
	} {
		t.Run(name, func(t *testing.T) {
			err := measure.Pause(t.Context(), strings.NewReader(c.input), nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("found the error %v, expected %q in it", err, c.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never, _ := io.Pipe()
	if err := measure.Pause(ctx, never, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v after an interrupt, expected %v", err, context.Canceled)
	}
}
