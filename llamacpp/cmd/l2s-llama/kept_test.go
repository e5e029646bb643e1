package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The states of a run that ended anywhere are read up to the last whole record. Those of another
// run, and what is damaged, are computed again, and a file of another kind stays.
func TestKeptStates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.l2p.states")
	own, other := [32]byte{1}, [32]byte{2}
	write := func() []byte {
		os.Remove(path)
		k, err := openKept(path, own, 2)
		if err != nil || len(k.left) != 0 {
			t.Fatalf("found %v, %v in a new file", k.left, err)
		}
		for _, states := range records {
			k.add(states)
		}
		k.close()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	whole := write()
	head := len(keptMagic) + 32
	ends := []int{head, head + 8 + 16, head + 8 + 16 + 8, len(whole)} // of the records
	for n := 0; n <= len(whole); n++ {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for want < len(records) && n >= ends[want+1] {
			want++
		}
		k, err := openKept(path, own, 2)
		if err != nil || len(k.left) != want || want > 0 && !reflect.DeepEqual(k.left, records[:want]) {
			t.Fatalf("%d bytes: found %v, %v, expected %d records", n, k.left, err, want)
		}
		// What is added follows them.
		for _, states := range records[want:] {
			k.add(states)
		}
		k.close()
		if b, _ := os.ReadFile(path); !slices.Equal(b, whole) {
			t.Fatalf("%d bytes: found %d bytes at last, expected the whole file", n, len(b))
		}
	}
	damaged := slices.Clone(whole)
	damaged[ends[1]+9] ^= 1
	damaged[head+9] ^= 1
	for name, c := range map[string]struct {
		content []byte
		of      [32]byte
	}{"another run's": {whole, other}, "damaged": {damaged, own}} {
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := openKept(path, c.of, 2)
		if err != nil || len(k.left) != 0 {
			t.Errorf("%s: found %v, %v, expected none", name, k.left, err)
		}
		k.close()
	}
	if err := os.WriteFile(path, []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := openKept(path, own, 2)
	k.add(records[0])
	if b, _ := os.ReadFile(path); err == nil || !strings.Contains(err.Error(), "move it away") || string(b) != "notes" {
		t.Errorf("a file of another kind: found %v, and %q in it", err, b)
	}
	if k, err = openKept("", own, 2); err != nil {
		t.Error(err)
	}
	k.add(records[0])
	k.close()
}

var records = [][]float32{{1, 2, 3, 4}, {}, {-5, 0.5}}

// The making of a preview goes on where it was stopped, with the same states as one that was not.
func TestTheMakingGoesOn(t *testing.T) {
	model := fastModel(t)
	file := filepath.Join(t.TempDir(), "states")
	states := func(f *flags, ctx context.Context, done func(string, float64)) ([]float32, error) {
		h, x, err := f.fastStates(ctx, "", done)
		if x != nil {
			x.Close()
		}
		return h, err
	}
	want, err := states(&flags{model: model, threads: 1, stderr: io.Discard}, context.Background(), func(string, float64) {})
	if err != nil {
		t.Fatal(err)
	}
	stopped, first := 0, 0.0
	for {
		ctx, cancel := context.WithCancel(context.Background())
		from, n := -1.0, 0
		found, err := states(&flags{model: model, threads: 1, stderr: io.Discard, statesFile: file}, ctx, func(stage string, share float64) {
			if from < 0 {
				from = share
			}
			if n++; n == 12 && stage == "states of texts" { // windows have eight batches, so that each run keeps some
				cancel()
			}
		})
		cancel()
		if from < first {
			t.Fatalf("run %d: found that it begins with the share %v, expected %v at least", stopped+1, from, first)
		}
		first = from
		if err == nil {
			if !slices.Equal(found, want) {
				t.Error("found other states than those of a run that was not stopped")
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if stopped++; stopped > 100 {
			t.Fatal("found no end: nothing was kept")
		}
	}
	if stopped < 2 {
		t.Errorf("found %d stops, expected several", stopped)
	}
}
