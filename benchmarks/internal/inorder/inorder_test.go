package inorder

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// double is a worker whose pieces are their own numbers, twice, except for the errors of bad.
func double(bad map[int]error) func() func(context.Context, int) (int, error) {
	return func() func(context.Context, int) (int, error) {
		return func(_ context.Context, i int) (int, error) { return 2 * i, bad[i] }
	}
}

func TestRunTakesAllRun(t *testing.T) {
	for _, threads := range []int{0, 1, 2, 3, 50} {
		for _, n := range []int{0, 1, 2, 17, 100} {
			next := 0
			err := Run(context.Background(), n, threads, double(nil), func(v int) error {
				if v != 2*next {
					return fmt.Errorf("found the result of piece %d, want %d", v/2, next)
				}
				next++
				return nil
			})
			if err != nil || next != n {
				t.Errorf("%d threads: %d of %d pieces; %v", threads, next, n, err)
			}
		}
	}
}

func TestRunReturnsTheFirstError(t *testing.T) {
	first, later := errors.New("first"), errors.New("later")
	for _, threads := range []int{1, 2, 7} {
		taken := 0
		take := func(int) error { taken++; return nil }
		if err := Run(context.Background(), 30, threads, double(map[int]error{11: first, 12: later}), take); err != first || taken != 11 {
			t.Errorf("%d threads: error of piece 11: got %v after %d pieces", threads, err, taken)
		}
		taken = 0
		stop := func(v int) error {
			if taken++; v == 2*5 {
				return first
			}
			return nil
		}
		if err := Run(context.Background(), 30, threads, double(map[int]error{6: later}), stop); err != first || taken != 6 {
			t.Errorf("%d threads: error of take: got %v after %d pieces", threads, err, taken)
		}
	}
}

func TestRunStopsWhenCancelled(t *testing.T) {
	for _, threads := range []int{1, 2, 7} {
		ctx, cancel := context.WithCancel(context.Background())
		taken := 0
		err := Run(ctx, 1<<30, threads, double(nil), func(int) error {
			if taken++; taken == 3 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%d threads: got %v after %d pieces", threads, err, taken)
		}
	}
}
