package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/threadpool"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
)

// ownText is the text for the states of a preview: prose, talk and code in several languages, in
// sections that are independent.
//
//go:embed fast.txt
var ownText string

const (
	fastWindow  = 256  // tokens of a text, which begins again with each window
	fastFrom    = 3    // the first of which give no states: nearly all texts have the same ones
	fastBatch   = 32   // llama.cpp copies stale logits of each state: few at a time take less memory, and no more time
	fastGiven   = 6000 // tokens of --text
	fastWriters = 16   // sequences that the model writes
	fastPrompt  = 12   // tokens of a window, with which one begins
	fastWritten = 96   // tokens of each
)

// withFast adds the flags of a preview; text describes the flag --text, "" if there is no such
// flag.
func (f *flags) withFast(text string) *flags {
	f.BoolVar(&f.fast, "fast", false, "find tokens by a preview, which the first start makes")
	f.BoolVar(&f.anew, "anew", false, "with --fast, make the preview anew")
	if text != "" {
		f.StringVar(&f.text, "text", "", text)
	}
	return f
}

// previewPaths are the files that a preview may be kept in: next to the model, or otherwise in the
// user's cache. A head of another source has another preview, and so has each text of --text.
func (f *flags) previewPaths() []string {
	suffix := ".l2p"
	for _, of := range []string{f.head, f.given} {
		if of != "" {
			sum := sha256.Sum256([]byte(of))
			suffix = fmt.Sprintf(".%x%s", sum[:4], suffix)
		}
	}
	paths := []string{f.model + suffix}
	cache, err := os.UserCacheDir()
	if err != nil {
		return paths
	}
	model, err := filepath.Abs(f.model)
	if err != nil {
		return paths
	}
	sum := sha256.Sum256([]byte(model))
	return append(paths, filepath.Join(cache, "l2s", fmt.Sprintf("%s-%x%s", filepath.Base(model), sum[:6], suffix)))
}

// readPreview reads the preview of the model, from the first file that has one: nil if there is
// none.
func (f *flags) readPreview() (*l2s.Index, string) {
	for _, path := range f.previewPaths() {
		if slices.Contains(f.foreign, path) {
			continue
		}
		m, err := loadPreview(path)
		if err == nil && (*l2sengine.Index)(m).Preview().Parts().Body != f.body { // its precision is of other states
			f.say("preview: %s is of another head, or body, than this model's\n", path)
			f.foreign = append(f.foreign, path)
			continue
		}
		if err == nil {
			return m, path
		}
		if !errors.Is(err, fs.ErrNotExist) && f.refused != err.Error() {
			f.refused = err.Error() // it is read again when this run may make another
			f.say("%v\n", err)
		}
	}
	return nil, ""
}

// ownPreview returns an error if a regular file has the name of a preview and is none: nothing
// replaces it. A preview may be of another version or model, or damaged.
func ownPreview(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // what is there cannot be read, or cannot be replaced
	}
	start, err := tensorfile.Start(path, len(previewMagic))
	if err != nil || !strings.HasPrefix(previewMagic, string(start)) {
		return fmt.Errorf("%s: found another kind of file, expected a preview: move it away", path)
	}
	return nil
}

// previewMagic are the first bytes of the file of a preview.
const previewMagic = "\x89L2P\r\n\x1a\n"

// holdPreview holds the file for the preview, and waits while another run makes it. An empty path
// means that no folder can be written to.
func (f *flags) holdPreview(ctx context.Context) (path string, release func(), err error) {
	for _, path := range f.previewPaths()[1:] {
		_ = os.MkdirAll(filepath.Dir(path), 0o777) // or Hold fails
	}
	why := error(nil)
	for _, path := range f.previewPaths() {
		start, told := time.Now(), time.Time{}
		if err := ownPreview(path); err != nil {
			return "", nil, err
		}
		for {
			release, err := atomicfile.Hold(path)
			if err == nil {
				// Before the minutes that the preview takes.
				if err = cmdline.CheckWritable([]cmdline.Output{{Path: path}}); err == nil {
					if why != nil {
						f.say("preview: %v: it is kept in %s\n", why, path)
					}
					return path, release, nil
				}
				release()
			}
			if why = err; !errors.Is(err, atomicfile.ErrHeld) {
				break
			}
			if time.Since(told) > 5*time.Second {
				f.say("preview: another run makes %s: waiting for it%s\n", path, since(start))
				told = time.Now()
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return "", nil, ctx.Err()
			}
		}
	}
	f.say("preview: found no folder to keep it in, it is of this run alone: %v\n", why)
	return "", func() {}, nil
}

// inMemory takes the place of the name of a preview that is in no file.
const inMemory = "in memory"

// since gives the time that something has taken, if that is more than a second.
func since(start time.Time) string {
	if took := time.Since(start); took > time.Second {
		return ", " + progress.Duration(took) + " so far"
	}
	return ""
}

// havePreview sets f.preview to the preview of the model, from a file or newly made.
func (f *flags) havePreview(ctx context.Context) error {
	if err := f.knowModel(ctx); err != nil {
		return err
	}
	if !f.anew {
		if f.preview, f.previewFile = f.readPreview(); f.preview != nil {
			return nil
		}
	}
	return f.newPreview(ctx, f.anew)
}

// knowModel reads what the preview of a model depends on: the text of --text, and the body.
func (f *flags) knowModel(ctx context.Context) error {
	if err := f.readGiven(ctx); err != nil {
		return err
	}
	return f.knowBody(ctx)
}

func (f *flags) readGiven(ctx context.Context) (err error) {
	if f.text == "" {
		return nil
	}
	if f.given, err = f.readText(ctx, f.text); err == nil && f.given == "" {
		err = fmt.Errorf("%s: found an empty file, expected a text", f.text)
	}
	return err
}

// knowBody computes the fingerprint of the body, which reads the whole model.
func (f *flags) knowBody(ctx context.Context) (err error) {
	f.body, err = waiting(ctx, f, func() ([32]byte, error) { return bodyOf(f.model) })
	return err
}

// newPreview makes the preview and keeps it. Unless anew is true, it takes a preview that another
// run has made meanwhile.
func (f *flags) newPreview(ctx context.Context, anew bool) error {
	path, release, err := f.holdPreview(ctx)
	if err != nil {
		return err
	}
	defer release()
	if !anew {
		if f.preview, f.previewFile = f.readPreview(); f.preview != nil {
			return nil
		}
	}
	if slices.Contains(f.foreign, path) {
		f.say("preview: %s is replaced when the new one is complete: to keep it, interrupt this run and move it away\n", path)
	}
	if f.statesFile = ""; path != "" {
		f.statesFile = keptFile(path)
	}
	if f.preview, err = f.makePreview(ctx); err != nil {
		return err
	}
	f.warnOfHoles()
	f.previewFile = cmp.Or(path, inMemory)
	if path == "" {
		return nil
	}
	if err := f.preview.Save(path); err != nil {
		f.say("%v: the preview is of this run alone\n", err)
		f.previewFile = inMemory
	}
	_ = os.Remove(f.statesFile)
	return nil
}

// bodyOf returns a fingerprint of all tensors of a GGUF model, in one file or in several, and of the
// settings of its architecture: models that compute the same states have the same one, whatever
// their tokenizers, templates and names.
func bodyOf(model string) (sum [32]byte, err error) {
	files := []string{model}
	if prefix, ok := strings.CutSuffix(model, ".gguf"); ok && len(prefix) > len("-00001-of-00002") {
		of := prefix[len(prefix)-len("-00001-of-00002"):]
		first, n := 0, 0
		if got, _ := fmt.Sscanf(of, "-%05d-of-%05d", &first, &n); got == 2 && first == 1 {
			for i := 2; i <= n; i++ {
				files = append(files, fmt.Sprintf("%s-%05d-of-%05d.gguf", strings.TrimSuffix(prefix, of), i, n))
			}
		}
	}
	all := sha256.New()
	for _, file := range files {
		if err := hashTensors(all, file); err != nil {
			return sum, err
		}
	}
	return [32]byte(all.Sum(nil)), nil
}

// hashTensors writes the settings and the tensors of a GGUF file to a hash, these as hashes of their
// parts, which all CPUs compute.
func hashTensors(all io.Writer, file string) error {
	var settings []string
	x, err := tensorfile.OpenFile(file, func(key []byte) bool {
		name, _, _ := bytes.Cut(key, []byte("."))
		use := !slices.Contains([]string{"tokenizer", "general", "split", "quantize"}, string(name)) || string(key) == "general.architecture"
		if use {
			settings = append(settings, string(key))
		}
		return use
	})
	if err != nil {
		return err
	}
	defer x.Close()
	slices.Sort(settings)
	for _, key := range settings {
		if n, err := x.Number(key); err == nil {
			fmt.Fprintf(all, "%q %v\n", key, n)
		} else if s, err := x.Text(key); err == nil {
			fmt.Fprintf(all, "%q %q\n", key, s)
		} else if list, err := x.Ints(key); err == nil {
			fmt.Fprintf(all, "%q %v\n", key, list)
		}
	}
	names := x.Names()
	slices.Sort(names)
	for _, name := range names {
		t, err := x.Tensor(name)
		if err != nil {
			return err
		}
		data, ok := t.View()
		if !ok {
			return fmt.Errorf("%s: %s: found a tensor that is not aligned, expected one in the order of the file", file, tensorfile.Label(name))
		}
		const part = 1 << 20
		sums := make([][sha256.Size]byte, (len(data)+part-1)/part)
		if err := parallel.Each(context.Background(), 0, len(data), part, nil, func(_, lo, hi int) error {
			sums[lo/part] = sha256.Sum256(data[lo:hi])
			mem.Forget(data[lo:hi]) // so that the file does not count as memory of the program
			return nil
		}); err != nil {
			return fmt.Errorf("%s: %s: %w", file, tensorfile.Label(name), err)
		}
		fmt.Fprintf(all, "%q %v %v %x\n", name, t.DType, t.Shape, sums)
	}
	return nil
}

// progress returns a printer for long work, nil with --quiet.
func (f *flags) progress() *progress.Printer {
	if f.quiet {
		return nil
	}
	return progress.New(f.stderr)
}

// makePreview computes states, by a separate model, and makes the preview from them.
func (f *flags) makePreview(ctx context.Context) (*l2s.Index, error) {
	p := f.progress()
	defer p.Close()
	const all = 10000
	p.Start("preview of "+filepath.Base(f.model), "percent", all)
	// The shares of the stages in the time, about.
	share := func(from, to float64) func(string, float64) {
		return func(stage string, done float64) {
			done = from + (to-from)*min(max(done, 0), 1)
			p.Part(stage)
			p.Set(int(all * done))
			if f.tell != nil {
				f.tell(stage, done)
			}
		}
	}
	states, x, err := f.fastStates(ctx, f.given, share(0, 0.45))
	if err != nil {
		return nil, err
	}
	defer debug.FreeOSMemory() // before the lasting model is opened
	defer f.closes(nil, x)
	stages := map[string]func(string, float64){"coordinates": share(0.45, 0.55), "codes": share(0.55, 0.75), "fingerprint": share(0.75, 0.77), "precision": share(0.77, 1)}
	made, err := preview.Make(ctx, x.Layer(), l2s.Float32(states, x.Layer().Dim()), preview.Options{Body: f.body, Progress: func(stage string, done float64) {
		if at := stages[stage]; at != nil {
			at(stage, done)
		}
	}})
	if err != nil {
		return nil, err
	}
	p.EndWith(fmt.Sprintf("%s states", progress.Count(len(states)/x.Dim())))
	return made, nil
}

// fastStates computes the states of the texts, and of the text that the model writes itself; done
// gets the stage, and the share of the work that is done.
func (f *flags) fastStates(ctx context.Context, given string, done func(stage string, share float64)) ([]float32, *llamacpp.Head, error) {
	o := llamacpp.Options{Context: fastWindow, Sequences: fastWriters, Batch: fastBatch, States: fastBatch}
	m, err := f.openModel(ctx, o)
	if err != nil { // of a model of shorter texts
		o.Context, o.Sequences = 0, 1
		if m, err = f.openModel(ctx, o); err != nil {
			return nil, nil, err
		}
	}
	defer f.closes(m)
	x, err := f.openHead(ctx, m, exactHead)
	if err != nil {
		return nil, nil, err
	}
	var parts [][]uint32
	sum, writers := 0, 0
	add := func(ids []uint32) {
		begin, begins := m.Begins()
		for n := m.Context() - 1; len(ids) > fastFrom; ids = ids[min(n, len(ids)):] {
			window := ids[:min(n, len(ids))]
			if begins {
				window = append([]uint32{begin}, window...)
			}
			parts, sum = append(parts, window), sum+len(window)
		}
	}
	for _, section := range strings.Split(ownText, "----\n") {
		ids, err := f.tokens(ctx, m, section, false)
		if err != nil {
			return nil, x, err
		}
		add(ids)
	}
	writers = len(parts)
	if given != "" {
		ids, err := f.tokens(ctx, m, given, false)
		if err != nil {
			return nil, x, err
		}
		// Windows from all of the text.
		for windows, i := min(fastGiven, len(ids))/fastWindow+1, 0; i < windows; i++ {
			at := i * len(ids) / windows
			add(ids[at:min(len(ids), at+fastWindow-1)])
		}
	}
	kept := f.keptOf(x, parts, o.Sequences)
	defer kept.close()
	all := sum + fastWritten*o.Sequences*2 // a token that is written takes about twice as long as one that is read
	count := 0
	states := make([]float32, 0, (sum+fastWritten*o.Sequences)*m.Dim())
	var tokens []llamacpp.Token
	// Threads of llama.cpp wait for each other: if other programs use the cores, one thread is
	// faster than all. The first part also reads the file, and the next two decide the number of
	// threads.
	threads := cmp.Or(f.threads, min(threadpool.Processors(), llamacpp.MaxThreads))
	var took [3]time.Duration // for each token
	at := 0                   // of the parts that this run computes
	for _, part := range parts {
		if found, ok := kept.next(); ok {
			states = append(states, found...)
			count += len(part)
			continue
		}
		var err error
		if at == 2 {
			err = m.SetThreads(1)
		} else if at == 3 && took[1] < took[2] {
			err = m.SetThreads(threads)
		}
		if err != nil {
			return nil, x, err
		}
		start, from := time.Now(), len(states)
		m.Clear(0)
		for i := 0; i < len(part); {
			tokens = tokens[:0]
			for ; i < len(part) && len(tokens) < fastBatch; i++ {
				tokens = append(tokens, llamacpp.Token{ID: part[i], State: i >= fastFrom})
			}
			found, err := m.Decode(ctx, tokens...)
			if err != nil {
				return nil, x, err
			}
			states = append(states, found...)
			count += len(tokens)
			done("states of texts", float64(count)/float64(all))
		}
		if at < len(took) {
			took[at] = time.Since(start) / time.Duration(len(part))
		}
		at++
		kept.add(states[from:])
	}
	if written, ok := kept.next(); ok {
		done("states of the model's text", 1)
		return append(states, written...), x, nil
	}
	written, err := f.writes(ctx, m, x, parts[:writers], o.Sequences, func(n int) { done("states of the model's text", float64(count+2*n)/float64(all)) })
	done("states of the model's text", 1) // also where the model has ended texts before
	if err == nil {
		kept.add(written)
	}
	return append(states, written...), x, err
}

// keptOf opens the file that keeps the states of these texts, and of the text that the model writes
// after them in some sequences. Without a file the run keeps nothing.
func (f *flags) keptOf(x *llamacpp.Head, texts [][]uint32, sequences int) *keptStates {
	all := sha256.New()
	fmt.Fprintln(all, f.body, f.head, x.Dim(), x.Labels(), fastFrom, fastBatch, fastPrompt, fastWritten, sequences)
	for _, text := range texts {
		fmt.Fprintln(all, text)
	}
	kept, err := openKept(f.statesFile, [sha256.Size]byte(all.Sum(nil)), x.Dim())
	if err != nil {
		f.say("preview: %v: this run begins anew if it is interrupted\n", err)
	}
	return kept
}

// writes lets the model continue the beginnings of some texts by itself, one per sequence, and
// returns the states after the tokens that it writes: tokens of the texts, among which a draw is
// quick.
func (f *flags) writes(ctx context.Context, m *llamacpp.Model, x *llamacpp.Head, texts [][]uint32, sequences int, done func(int)) ([]float32, error) {
	o := sample.DefaultOptions()
	o.TopK, o.Seed = 100, 1 // at temperature 1
	draw, err := x.Sampler(o)
	if err != nil {
		return nil, err
	}
	words, err := bitset.FromIDs(x.Labels(), distinct(texts, x.Labels()))
	if err != nil {
		return nil, err
	}
	var tokens []llamacpp.Token
	var all []float32
	sequences = min(sequences, len(texts))
	for s := range sequences {
		m.Clear(s)
		text := texts[s*len(texts)/sequences]
		text = text[:min(fastPrompt, len(text))]
		for i, id := range text {
			tokens = append(tokens, llamacpp.Token{Sequence: s, ID: id, State: i == len(text)-1})
		}
	}
	for i := range fastWritten {
		states, err := m.Decode(ctx, tokens...)
		if err != nil {
			return nil, err
		}
		all = append(all, states...)
		asked := tokens[:0]
		n := 0
		for _, t := range tokens {
			if !t.State {
				continue
			}
			h := states[n*m.Dim():][:m.Dim()]
			n++
			next, err := draw.Draw(h, sample.Edits{Allowed: words})
			if err != nil {
				return nil, err
			}
			if !m.Ends(next.ID) && m.Len(t.Sequence) < m.Context() {
				asked = append(asked, llamacpp.Token{Sequence: t.Sequence, ID: next.ID, State: true})
			}
		}
		if tokens = asked; len(tokens) == 0 {
			break
		}
		done((i + 1) * sequences)
	}
	return all, nil
}

// distinct returns the tokens of some texts that a head has.
func distinct(texts [][]uint32, labels int) []uint32 {
	ids := slices.Concat(texts...)
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id uint32) bool { return int64(id) >= int64(labels) })
}

// ownStates is the number of own states that a preview was measured on.
func ownStates(x *l2s.Index) int { return (*l2sengine.Index)(x).Preview().Parts().Own }

// ownFound describes the found share of own states: of tokens each in a state in which it leads.
func ownFound(m *l2s.Index, r previewing.Rung) string {
	n := ownStates(m)
	if n == 0 {
		return "no own states"
	}
	return fmt.Sprintf("%.4f (%.4f to %.4f) of %s own states", r.Own.Value, r.Own.Low, r.Own.High, progress.Count(n))
}

// warnOfHoles tells that a new preview misses more tokens than it should.
func (f *flags) warnOfHoles() {
	if r := engine.Rung(f.preview, 0); ownStates(f.preview) > 0 && r.Own.Value < precision.TargetOwn {
		f.say("warning: the preview finds %s, each of a token that leads in it, fewer than %v: it may never find some rare tokens, such as those of scripts that few texts have; without --fast all are found\n", ownFound(f.preview, r), precision.TargetOwn)
	}
}

// measured describes the measured precision of the preview.
func (f *flags) measured() string {
	k, n := f.preview.Measured()
	r := engine.Rung(f.preview, f.budget)
	return fmt.Sprintf("P@1 %.4f (%.4f to %.4f) and P@%d %.4f on %s held-out states, %s; it looks at %.1f%% of %s tokens and scores %.0f in full",
		r.Precision1.Value, r.Precision1.Low, r.Precision1.High, k, r.PrecisionK.Value, progress.Count(n), ownFound(f.preview, r), 100*r.Looked, progress.Count(f.preview.Labels()), r.Kept)
}
