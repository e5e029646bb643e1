package demolm

import (
	"context"
	"slices"
	"testing"
)

func TestTheModelWritesContexts(t *testing.T) {
	m, v, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	var told []int
	long, err := Contexts(context.Background(), m, v, 40, 1, func(done int) { told = append(told, done) })
	if err != nil {
		t.Fatal(err)
	}
	if len(long) != 40*m.Dim() || len(told) == 0 || told[len(told)-1] != 40 {
		t.Errorf("%d elements, progress %v", len(long), told)
	}
	short, err := Contexts(context.Background(), m, v, 30, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(short, long[:len(short)]) {
		t.Error("a shorter text is not the beginning of a longer one")
	}
	other, err := Contexts(context.Background(), m, v, 30, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(short, other) {
		t.Error("another seed gave the same text")
	}
}
