package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/labelfile"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/train/internal/learn"
)

// checkpointed are options of a short run with a checkpoint.
func checkpointed(t *testing.T) Options {
	o := testOptions()
	o.Checkpoint = filepath.Join(t.TempDir(), "m.l2s.partial")
	return o
}

// interrupt runs until a report of progress for which stop returns true.
func interrupt(t *testing.T, s synthetic, o Options, stop func(p Progress) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Progress = func(p Progress) {
		if stop(p) {
			cancel()
		}
	}
	if m, _, err := runOver(ctx, s.layer, s.contexts, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("found screen %v and error %v, expected an interrupted run", m, err)
	}
}

// A run that is interrupted at any place, and continued, gives the same bytes as a run without an
// interrupt.
func TestInterruptedRunContinuesToTheSameBytes(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	message := func(text string) func(Progress) bool {
		return func(p Progress) bool { return strings.HasPrefix(p.Message, text) }
	}
	within := func(stage string, iteration int) func(Progress) bool {
		return func(p Progress) bool { return p.Stage == stage && p.Iteration == iteration && p.Done > 0 }
	}
	type stop struct {
		name string
		at   func(Progress) bool
		left []string // of the checkpoint afterwards
	}
	const state, labels = "m.l2s.partial", "m.l2s.partial-labels"
	for _, variant := range []struct {
		name   string
		change func(o *Options)
	}{
		{"Gumbel", func(o *Options) { o.Learning.Estimator = learn.GumbelST }},
		{"more than an epoch an alternation", func(o *Options) { o.Learning.EpochFraction, o.Always = 1.7, []uint32{9, 3} }},
		{"expected", func(o *Options) { o.Learning.Estimator = learn.Expected }},
	} {
		o := checkpointed(t)
		variant.change(&o)
		plain := o
		plain.Checkpoint = ""
		want, _, err := runOver(t.Context(), s.layer, s.contexts, plain)
		if err != nil {
			t.Fatal(err)
		}
		stops := []stop{
			{"labels", within(stage.Labels, 0), nil},
			{"k-means", within(stage.KMeans, 2), []string{state, labels}},
			{"k-means finished", message("alternation 0"), []string{state, labels}},
		}
		for i := 1; i <= o.Iterations; i++ {
			stops = append(stops,
				stop{fmt.Sprint("learn ", i), within(stage.Learn, i), []string{state, labels}},
				stop{fmt.Sprint("assign ", i), within(stage.Assign, i), []string{state, labels}},
				stop{fmt.Sprint("alternation ", i), message(fmt.Sprintf("alternation %d", i)), []string{state, labels}})
		}
		resume := func(t *testing.T) {
			t.Helper()
			o.Threads = 3 - o.Threads%2 // another number of threads leaves no trace
			got, _, err := runOver(t.Context(), s.layer, s.contexts, o)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(encoded(t, got), encoded(t, want)) {
				t.Error("found other bytes than an uninterrupted run writes, expected the same")
			}
			if err := RemoveCheckpoint(o.Checkpoint); err != nil {
				t.Fatal(err)
			}
		}
		for _, stop := range stops {
			t.Run(variant.name+": "+stop.name, func(t *testing.T) {
				interrupt(t, s, o, stop.at)
				var left []string
				entries, err := os.ReadDir(filepath.Dir(o.Checkpoint))
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					left = append(left, e.Name())
				}
				if !slices.Equal(left, stop.left) {
					t.Errorf("found the files %v after the interrupt, expected %v", left, stop.left)
				}
				resume(t)
			})
		}
		t.Run(variant.name+": at every alternation in turn", func(t *testing.T) {
			for _, stop := range stops[2:] {
				interrupt(t, s, o, stop.at)
			}
			resume(t)
		})
		t.Run(variant.name+": not at all", resume)
		t.Run(variant.name+": at the end, with its checkpoint left", func(t *testing.T) {
			if _, _, err := runOver(t.Context(), s.layer, s.contexts, o); err != nil {
				t.Fatal(err)
			}
			resume(t)
		})
	}
	t.Run("k-means only", func(t *testing.T) {
		o := checkpointed(t)
		o.Iterations = 0
		want, _, err := runOver(t.Context(), s.layer, s.contexts, o)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := runOver(t.Context(), s.layer, s.contexts, o)
		if err != nil || !bytes.Equal(encoded(t, got), encoded(t, want)) {
			t.Errorf("found other bytes (%v), expected the same", err)
		}
	})
}

// Contexts of float16 with known labels give the same bytes as their values in float32, with an
// interrupt at any place.
func TestRunOfFloat16(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	half := make([]uint16, len(s.contexts))
	for i, x := range s.contexts {
		bits := math.Float32bits(x)
		if half[i] = uint16(bits >> 16 & 0x8000); bits>>23&0xff > 112 {
			half[i] |= uint16((bits>>23&0xff-112)<<10 | bits>>13&0x3ff)
		}
	}
	rows := kernels.Float16Rows(half, s.dim)
	for i := range s.n {
		rows.Widen(s.contexts[i*s.dim:(i+1)*s.dim], i)
	}
	o := testOptions()
	o.Shells, o.Validation = []float64{0.4}, slices.Concat(newSynthetic(t, 4, 100, 6, 40, 5, 0.3).contexts, s.contexts[:60])
	tail := DefaultTailOptions()
	o.Tail = &tail
	want, wantRecord, err := runOver(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Labels, o.Checkpoint = labelsOf(t, s, o.K), filepath.Join(t.TempDir(), "m.l2s.partial")
	for _, stage := range []string{stage.KMeans, stage.Learn, stage.Measure, stage.Tail} {
		ctx, cancel := context.WithCancel(t.Context())
		o.Progress = func(p Progress) {
			if p.Stage == stage {
				cancel()
			}
		}
		if _, _, err := runOver(ctx, s.layer, rows, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: found error %v, expected an interrupted run", stage, err)
		}
	}
	o.Progress = nil
	got, record, err := runOver(t.Context(), s.layer, rows, o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encoded(t, got), encoded(t, want)) || record.LeftOut != 10 || wantRecord.LeftOut != 10 {
		t.Errorf("found other bytes, or %d contexts left out, expected the same and 10", record.LeftOut)
	}
	if trained, err := labelfile.SameContexts(t.Context(), s.contexts, s.dim, record.Contexts, record.ContextsDigest, 0); !trained || err != nil {
		t.Errorf("found that the screen was trained on other contexts (%v), expected the same", err)
	}

	half[7*s.dim+2] = 0x7c00
	if _, _, err := runOver(t.Context(), s.layer, rows, o); err == nil || !strings.Contains(err.Error(), "context 7: found +Inf at element 2") {
		t.Errorf("found %v, expected an error about context 7", err)
	}
	if _, _, err := runOver(t.Context(), s.layer, kernels.Float16Rows(half, 2*s.dim), o); err == nil || err.Error() != "train: contexts: found rows of 12 values, expected 6, the dimension of the layer" {
		t.Errorf("found %v, expected an error about the dimension", err)
	}
}

// The finished work of an interrupted run is not repeated.
func TestContinuedRunDoesNotRepeat(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	for _, c := range []struct {
		stop func(p Progress) bool
		done []string // the stages
	}{
		{func(p Progress) bool { return strings.HasPrefix(p.Message, "alternation 2") }, []string{stage.Labels, stage.KMeans}},
		{func(p Progress) bool { return p.Stage == stage.Measure }, []string{stage.Labels, stage.KMeans, stage.Learn}},
	} {
		o := checkpointed(t)
		interrupt(t, s, o, c.stop)
		o.Progress = func(p Progress) {
			if slices.Contains(c.done, p.Stage) {
				t.Errorf("found %+v, expected the work after %v alone", p, c.done)
			}
		}
		if _, record, err := runOver(t.Context(), s.layer, s.contexts, o); err != nil || len(record.KMeans) == 0 || len(record.Learning.Alternations) != 4 {
			t.Errorf("after %v: found error %v and the record %+v, expected 4 alternations", c.done, err, record)
		}
	}
}

func TestCheckpointOfAnotherRunIsRefused(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	o := checkpointed(t)
	interrupt(t, s, o, func(p Progress) bool { return strings.HasPrefix(p.Message, "alternation 1") })
	files := map[string][]byte{}
	for _, path := range stage.Files(o.Checkpoint) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = data
	}
	state, labels := o.Checkpoint, o.Checkpoint+"-labels"
	damaged := func(path string, at int) map[string][]byte {
		data := slices.Clone(files[path])
		data[at] ^= 1
		return map[string][]byte{path: data}
	}
	other := newSynthetic(t, 4, 900, 6, 40, 5, 0.3)
	bias := slices.Clone(s.layer.Bias())
	bias[7]++
	layer, err := exact.NewLayer(s.layer.Weights(), bias)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(s *synthetic, o *Options)
		files  map[string][]byte // instead of the remaining files, nil for none
		want   []string
	}{
		{"another layer", func(s *synthetic, _ *Options) { s.layer = layer }, nil, []string{state, "another run", "another layer"}},
		{"other contexts", func(s *synthetic, _ *Options) { s.contexts = other.contexts }, nil, []string{state, "other contexts"}},
		{"fewer contexts", func(s *synthetic, _ *Options) { s.contexts = s.contexts[:200*s.dim] }, nil, []string{state, "other contexts"}},
		{"another k", func(_ *synthetic, o *Options) { o.K = 4 }, nil, []string{state, "another k"}},
		{"a damaged file", func(*synthetic, *Options) {}, damaged(state, 1000), []string{state, "checksum", "damaged"}},
		{"a truncated file", func(*synthetic, *Options) {}, map[string][]byte{state: files[state][:1000]}, []string{state, "checksum"}},
		{"damaged labels", func(*synthetic, *Options) {}, damaged(labels, 2000), []string{labels, "damaged"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := RemoveCheckpoint(o.Checkpoint); err != nil {
				t.Fatal(err)
			}
			for path, data := range files {
				if d, ok := c.files[path]; ok {
					data = d
				}
				if data == nil {
					continue
				}
				if err := os.WriteFile(path, data, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			s, o := s, o
			c.change(&s, &o)
			m, _, err := runOver(t.Context(), s.layer, s.contexts, o)
			if !errors.Is(err, ErrCheckpoint) || m != nil {
				t.Fatalf("found error %v, expected one about the checkpoint", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("found %q, expected %q in it", err, want)
				}
			}
		})
	}
}

// Labels do not depend on the options, except k: a run with other options continues from them.
func TestLabelsOfAnInterruptedRunServeOtherOptions(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	o := checkpointed(t)
	interrupt(t, s, o, func(p Progress) bool { return p.Stage == stage.Learn })
	o.Budget, o.Seed, o.Learning.Rate = 13, 7, 0.03
	told := false
	o.Progress = func(p Progress) {
		told = told || strings.Contains(p.Message, "its labels are kept")
		if p.Stage == stage.Labels && p.Message == "" {
			t.Errorf("found %+v, expected the labels that were left", p)
		}
	}
	got, _, err := runOver(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Checkpoint, o.Progress = "", nil
	want, _, err := runOver(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	if !told || !bytes.Equal(encoded(t, got), encoded(t, want)) {
		t.Errorf("found other bytes than a run without a checkpoint writes, or no word of other options (%v)", told)
	}
}

// After a learning rate that diverges the same checkpoint serves a lower one.
func TestLearningThatDivergedLeavesTheLabels(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	for _, given := range []bool{false, true} {
		o := checkpointed(t)
		o.Learning.Estimator = learn.GumbelST
		if given {
			o.Labels = labelsOf(t, s, o.K)
		}
		good := o.Learning.Rate
		o.Learning.Rate = 1e308
		if _, _, err := runOver(t.Context(), s.layer, s.contexts, o); err == nil || !strings.Contains(err.Error(), "learning diverged, give a lower learning rate") {
			t.Fatalf("labels given: %v: found error %v, expected one that asks for a lower rate", given, err)
		}
		o.Learning.Rate = good
		o.Progress = func(p Progress) {
			if p.Stage == stage.Labels {
				t.Errorf("labels given: %v: found %+v, expected the labels that were kept", given, p)
			}
		}
		if _, _, err := runOver(t.Context(), s.layer, s.contexts, o); err != nil {
			t.Errorf("labels given: %v: the good rate after the bad: %v", given, err)
		}
		if err := RemoveCheckpoint(o.Checkpoint); err != nil {
			t.Error(err)
		}
	}
}

// Files that no run has left are neither used nor replaced nor removed.
func TestFilesThatAreNoCheckpoint(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	o := checkpointed(t)
	interrupt(t, s, o, func(p Progress) bool { return strings.HasPrefix(p.Message, "alternation 1") })
	path, labelsPath := o.Checkpoint, o.Checkpoint+"-labels"
	state, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	labels, err := os.ReadFile(labelsPath)
	if err != nil {
		t.Fatal(err)
	}
	precious := []byte("precious")
	for _, c := range []struct {
		name          string
		state, labels []byte // nil for none
		want          string
	}{
		{"labels of the same contexts", nil, labels, labelsPath + ": found labels without the state of a run in " + path},
		{"another file for the state", precious, nil, path + ": found another kind of file, expected the state"},
		{"another file for the state, with labels", precious, labels, path + ": found another kind of file"},
		{"an empty file for the state", []byte{}, labels, path + ": found another kind of file"},
		{"another file for the labels", nil, precious, labelsPath + ": found another kind of file, expected the labels"},
		{"another file for the labels, with a state", state, precious, labelsPath + ": found another kind of file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for file, data := range map[string][]byte{path: c.state, labelsPath: c.labels} {
				os.Remove(file)
				if data != nil {
					if err := os.WriteFile(file, data, 0o666); err != nil {
						t.Fatal(err)
					}
				}
			}
			given := o
			given.Labels = labelsOf(t, s, o.K)
			_, _, run := runOver(t.Context(), s.layer, s.contexts, o)
			_, _, runGiven := runOver(t.Context(), s.layer, s.contexts, given)
			for name, err := range map[string]error{"Run": run, "Run with labels": runGiven, "RemoveCheckpoint": RemoveCheckpoint(path)} {
				if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrCheckpoint) {
					t.Errorf("%s: found error %v, expected %q, and not one about a checkpoint to be removed", name, err, c.want)
				}
			}
			for file, data := range map[string][]byte{path: c.state, labelsPath: c.labels} {
				if got, err := os.ReadFile(file); (err == nil) != (data != nil) || !bytes.Equal(got, data) {
					t.Errorf("%s: found %d bytes (%v), expected the %d from before", file, len(got), err, len(data))
				}
			}
		})
	}
}

func TestCheckpointThatCannotBeWrittenEndsTheRun(t *testing.T) {
	s := newSynthetic(t, 3, 300, 6, 40, 5, 0.3)
	o := testOptions()
	o.Checkpoint = filepath.Join(t.TempDir(), "no", "such", "folder")
	if _, _, err := runOver(t.Context(), s.layer, s.contexts, o); err == nil || !strings.Contains(err.Error(), o.Checkpoint) {
		t.Errorf("found error %v, expected one that names the file", err)
	}
}

func TestRemoveCheckpointWithoutOne(t *testing.T) {
	if err := RemoveCheckpoint(filepath.Join(t.TempDir(), "nothing")); err != nil {
		t.Error(err)
	}
}
