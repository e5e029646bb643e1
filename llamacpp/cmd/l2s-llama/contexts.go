package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/sample"
)

const contextsUsage = `
l2s-llama contexts --model M.gguf --out H.npy --targets T.npy --text FILE [FILE ...] [flags]

Computes hidden states of texts, for l2s train --head M.gguf --contexts H.npy. A text is cut into
windows of tokens, which begin as the model's texts begin. The first tokens of a window are context
alone; of the others some give a state, evenly spread. T.npy has the token that followed each state.
With --written the model continues each window by itself, one window with best tokens and the next
with draws, and each token gives a state: a screen should know the text of the model, if it is not
like the texts. Texts and states may be larger than memory. An interrupted run keeps its states in
H.npy.part and T.npy.part: the same command continues from there. Every 10 s, and with each 64 KiB
of text, a line gives the progress. Bytes that are not UTF-8 count as U+FFFD.`

// contextsRun has the settings that decide the states: a run continues another run with the same
// settings.
type contextsRun struct {
	Model   file   `json:"model"`
	Texts   []file `json:"texts"`
	Window  int    `json:"window"`
	Warmup  int    `json:"warmup"`
	States  int    `json:"states"`
	Written int    `json:"written"`
	Most    int    `json:"most"`
	Half    bool   `json:"half"`
	Fast    bool   `json:"fast,omitempty"` // a preview chose the tokens that the model writes
}

type file struct {
	Path string    `json:"path"`
	Size int64     `json:"size"`
	Time time.Time `json:"time"`
}

func stat(path string) (file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return file{}, err
	}
	if info.IsDir() {
		return file{}, fmt.Errorf("%s: found a folder, expected a file", path)
	}
	if !info.Mode().IsRegular() {
		return file{}, fmt.Errorf("%s: found a device or a pipe, expected a regular file, in which a run can continue", path)
	}
	return file{path, info.Size(), info.ModTime().UTC()}, nil
}

// contextsDone is the progress of a run.
type contextsDone struct {
	Run    contextsRun `json:"run"`
	Text   int         `json:"text"`   // its number
	Offset int64       `json:"offset"` // in it, of the next chunk
	Rows   int         `json:"rows"`   // written
	Phase  int         `json:"phase"`  // of the next window
	Tokens int64       `json:"tokens"`
}

// hold keeps other runs from the parts of the files: two runs at once would mix them.
func hold(paths ...string) (release func(), err error) {
	var held []func()
	release = func() {
		for _, f := range held {
			f()
		}
	}
	for _, path := range paths {
		f, err := atomicfile.Hold(partOf(path))
		if errors.Is(err, atomicfile.ErrHeld) {
			err = fmt.Errorf("%w: wait for its end, or give other files", err)
		}
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, f)
	}
	return release, nil
}

// texts is a flag that may be given again, and takes the arguments that are left.
type texts []string

func (t *texts) String() string { return strings.Join(*t, " ") }
func (t *texts) Set(s string) error {
	if s == "" {
		return errors.New("expected the name of a file")
	}
	*t = append(*t, s)
	return nil
}

func runContexts(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("contexts", contextsUsage, stdout, stderr).withFast("")
	f.StringVar(&f.head, "head", "", "the `source` of the head, for --written, if not the model's own files")
	f.takes = true
	var list texts
	f.Var(&list, "text", "a `file` of text in UTF-8; may be given again, and follow the flags")
	out := f.String("out", "", "the `file` of states to write, .npy")
	targets := f.String("targets", "", "the `file` of the tokens that followed, .npy")
	window := f.Int("window", 256, "how `many` tokens a window has")
	warmup := f.Int("warmup", 32, "how `many` of these are context alone")
	states := f.Int("states", 32, "how `many` states a window gives, 0 for all")
	written := f.Int("written", 0, "how `many` tokens the model writes after each window")
	most := f.Int("most", 0, "how `many` states to write at most, 0 for all")
	half := f.Bool("float16", false, "write float16, half the size, in place of float32")
	restart := f.Bool("restart", false, "do not continue an earlier run")
	if err := f.parse(args); err != nil {
		return err
	}
	list = append(list, f.left...)
	switch {
	case len(list) == 0:
		return wrongUse("found no --text, expected a file at least")
	case *out == "" || *targets == "":
		return wrongUse("expected --out and --targets, files to write")
	case *window > mostTokens || *written > mostTokens:
		return wrongUse("--window, --written: found %d and %d, expected at most %d", *window, *written, mostTokens)
	case *warmup < 0 || *warmup > *window-2:
		return wrongUse("--window, --warmup: found %d and %d, expected a window of two more tokens at least", *window, *warmup)
	case f.fast && *written == 0:
		return wrongUse("found --fast without --written, expected both: a head is asked for nothing else")
	case *states < 0 || *written < 0 || *most < 0:
		return wrongUse("--states, --written, --most: found %d, %d and %d, expected 0 or more", *states, *written, *most)
	}
	if *states == 0 || *states > *window-*warmup-1 {
		*states = *window - *warmup - 1
	}
	if err := f.checkOutputs(ctx, outputsOf(*out, *targets), list...); err != nil {
		return err
	}
	release, err := hold(*out, *targets)
	if err != nil {
		return err
	}
	defer release()
	run := contextsRun{Window: *window, Warmup: *warmup, States: *states, Written: *written, Most: *most, Half: *half, Fast: f.fast}
	if run.Model, err = stat(f.model); err != nil {
		return err
	}
	for _, path := range list {
		text, err := stat(path)
		if err != nil {
			return err
		}
		run.Texts = append(run.Texts, text)
	}
	earlier, err := earlierRun(*out, *targets, run, *restart)
	if err != nil {
		return err
	}
	m, err := f.open(ctx, llamacpp.Options{Context: *window + 1 + *written, Batch: *window + 1, States: *states + 1})
	if err != nil {
		return err
	}
	defer f.closes(m)
	var x *llamacpp.Head
	if *written > 0 {
		if x, err = f.openHead(ctx, m, f.kind()); err != nil {
			return err
		}
		defer f.closes(nil, x)
	}
	w, err := openParts(*out, *targets, m.Dim(), earlier)
	if err != nil {
		return err
	}
	defer w.close()
	if earlier.Rows > 0 {
		f.say("going on after %d states\n", earlier.Rows)
	}
	c := &collector{f: f, m: m, x: x, w: w, done: earlier, start: time.Now(), before: earlier.Tokens}
	if err := c.collect(ctx); err != nil {
		if errors.Is(err, context.Canceled) {
			f.say("%d states are kept in %s.part: the same command continues\n", w.saved, *out)
		}
		return err
	}
	if w.rows == 0 {
		return fmt.Errorf("found no window of %d tokens in the texts, expected one at least", *warmup+2)
	}
	if err := w.finish(); err != nil {
		return err
	}
	c.progress(0)
	return nil
}

// collector walks through the texts.
type collector struct {
	f      *flags
	m      *llamacpp.Model
	x      *llamacpp.Head // nil if the model writes nothing
	w      *parts
	done   contextsDone
	start  time.Time
	shown  time.Time
	before int64 // tokens of earlier runs
}

// chunkBytes is the size of the text that is cut into tokens at once. Windows do not cross chunks.
const chunkBytes = 1 << 16

func (c *collector) collect(ctx context.Context) error {
	for ; c.done.Text < len(c.done.Run.Texts); c.done.Text, c.done.Offset = c.done.Text+1, 0 {
		if err := c.text(ctx, c.done.Run.Texts[c.done.Text].Path); err != nil {
			return err
		}
		if c.full() {
			break
		}
	}
	return nil
}

func (c *collector) full() bool { return c.done.Run.Most > 0 && c.w.rows >= c.done.Run.Most }

func (c *collector) text(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(c.done.Offset, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(f, chunkBytes)
	for !c.full() {
		chunk, err := nextChunk(in)
		if len(chunk) == 0 && err != nil {
			if err == io.EOF {
				return nil
			}
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := c.chunk(ctx, chunk); err != nil {
			return err
		}
		c.done.Offset += int64(len(chunk))
		c.done.Rows = c.w.rows
		if err := c.w.save(c.done); err != nil {
			return err
		}
		c.progress(2 * time.Second)
	}
	return nil
}

// nextChunk returns text up to the last line end, or the last space, of a chunk.
func nextChunk(in *bufio.Reader) ([]byte, error) {
	b, err := in.Peek(chunkBytes)
	if len(b) < chunkBytes {
		b = bytes.Clone(b)
		in.Discard(len(b))
		return b, err
	}
	n := bytes.LastIndexByte(b, '\n') + 1
	if n == 0 {
		n = bytes.LastIndexByte(b, ' ')
	}
	if n <= 0 {
		n = len(b)
		for n > len(b)-4 && b[n-1]&0xc0 == 0x80 { // not within a character
			n--
		}
		if b[n-1] >= 0xc0 {
			n--
		}
	}
	b = bytes.Clone(b[:n])
	in.Discard(n)
	return b, nil
}

// chunk computes the states of one chunk.
func (c *collector) chunk(ctx context.Context, text []byte) error {
	run := c.done.Run
	ids, err := c.f.tokens(ctx, c.m, string(text), false)
	if err != nil {
		return err
	}
	begin, begins := c.m.Begins()
	var tokens []llamacpp.Token
	var follow []int32
	var behind []float32 // the state after the last token of a window
	for len(ids) > run.Warmup+1 && !c.full() {
		n := min(run.Window, len(ids)-1) // the last token has no next one
		tokens, follow = tokens[:0], follow[:0]
		if begins {
			tokens = append(tokens, llamacpp.Token{ID: begin})
		}
		for i, id := range ids[:n] {
			take := wanted(i-run.Warmup, run.States, run.Window-run.Warmup, c.done.Phase)
			tokens = append(tokens, llamacpp.Token{ID: id, State: take || run.Written > 0 && i == n-1})
			if take {
				follow = append(follow, int32(ids[i+1]))
			}
		}
		c.m.Clear(0)
		states, err := c.m.Decode(ctx, tokens...)
		if err != nil {
			return err
		}
		if run.Written > 0 {
			behind = append(behind[:0], states[len(states)-c.m.Dim():]...)
		}
		if err := c.add(states[:len(follow)*c.m.Dim()], follow); err != nil {
			return err
		}
		if run.Written > 0 {
			if err := c.write(ctx, behind); err != nil {
				return err
			}
		}
		c.done.Phase++
		c.done.Tokens += int64(n)
		ids = ids[n:]
		c.within()
	}
	return nil
}

// add writes states, until there are enough.
func (c *collector) add(states []float32, follow []int32) error {
	if most := c.done.Run.Most; most > 0 && c.w.rows+len(follow) > most {
		follow = follow[:max(0, most-c.w.rows)]
		states = states[:len(follow)*c.m.Dim()]
	}
	return c.w.add(states, follow)
}

// write lets the model continue a window, from the state after its last token.
func (c *collector) write(ctx context.Context, h []float32) error {
	s := &sampling{o: sample.DefaultOptions()}
	s.o.TopK, s.o.Temperature, s.o.Seed = 10, 0, uint64(c.done.Phase)
	if c.done.Phase%2 == 1 {
		s.o.Temperature = 0.8
	}
	choose, err := s.chooser(c.x)
	if err != nil {
		return err
	}
	for i := range c.done.Run.Written {
		id, _, err := choose.Next(h, nil)
		if err != nil {
			return err
		}
		if err := c.add(h, []int32{int32(id)}); err != nil {
			return err
		}
		if c.done.Tokens++; i == c.done.Run.Written-1 {
			break
		}
		if h, err = c.m.Feed(ctx, 0, id); err != nil {
			return err
		}
	}
	return nil
}

// wanted reports whether token i after the context gives one of k states, spread over n tokens;
// every window begins elsewhere.
func wanted(i, k, n, phase int) bool {
	if i < 0 || i >= n {
		return false
	}
	at := phase*7%n + i
	return at*k/n != (at+1)*k/n
}

// within reports the progress of the run within a chunk of text, if the last report is long ago.
func (c *collector) within() {
	if time.Since(c.start) >= noted {
		c.progress(noted)
	}
}

// noted is the longest time between two lines of progress, plus the time of a window.
const noted = 10 * time.Second

// progress reports the progress of the run, unless there was a report within that time.
func (c *collector) progress(within time.Duration) {
	if time.Since(c.shown) < within {
		return
	}
	c.shown = time.Now()
	rate := float64(c.done.Tokens-c.before) / time.Since(c.start).Seconds()
	c.f.say("text %d of %d: %d tokens, %d states, %.0f tokens per second\n", min(c.done.Text+1, len(c.done.Run.Texts)), len(c.done.Run.Texts), c.done.Tokens, c.w.rows, rate)
}

// parts are the two files while they grow.
type parts struct {
	states, targets *part
	note            string // the file with their progress
	rows, saved     int
	dim             int
	half            bool
	buf             []byte
}

// part is a .npy file whose first dimension is set at the end.
type part struct {
	path  string
	file  *os.File
	w     *bufio.Writer
	descr string
	cols  int // 0: a list
	row   int64
}

// headerBytes is the length of the header of a file, for any number of rows.
const headerBytes = 128

func (p *part) header(rows int) []byte {
	if p.cols == 0 {
		return tensorfile.NPYHeader(p.descr, rows)
	}
	return tensorfile.NPYHeader(p.descr, rows, p.cols)
}

// partOf and noteOf name the files in which a run keeps its work: a part of each output, and the
// progress.
func partOf(path string) string { return path + ".part" }
func noteOf(out string) string  { return partOf(out) + ".json" }

// outputsOf are the files that a run writes.
func outputsOf(out, targets string) []cmdline.Output {
	const kept = "where the work of the run is kept"
	return []cmdline.Output{{Flag: "--out", Path: out}, {Flag: "--targets", Path: targets},
		{Flag: "--out", Path: partOf(out), What: kept}, {Flag: "--targets", Path: partOf(targets), What: kept},
		{Flag: "--out", Path: noteOf(out), What: kept}}
}

// earlierRun returns the progress of an earlier run with the same texts and flags, or the beginning
// of a new one. Files that no run has left are an error: nothing replaces them.
func earlierRun(out, targets string, run contextsRun, restart bool) (contextsDone, error) {
	fresh := contextsDone{Run: run}
	foreign := func(path string) (contextsDone, error) {
		return fresh, fmt.Errorf("%s: found another kind of file, expected the state of an interrupted run: move it away", path)
	}
	note := noteOf(out)
	info, err := os.Stat(note)
	noted := err == nil
	var old contextsDone
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fresh, err
	case !info.Mode().IsRegular():
		return foreign(note)
	default:
		text, err := os.ReadFile(note)
		if err != nil {
			return fresh, err
		}
		if json.Unmarshal(text, &old) != nil || old.Run.Model.Path == "" {
			return foreign(note)
		}
	}
	for _, path := range []string{partOf(out), partOf(targets)} {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return fresh, err
		case !noted || !info.Mode().IsRegular(): // a run writes the progress first
			return foreign(path)
		case info.Size() == 0:
			continue
		}
		start, err := tensorfile.Start(path, headerBytes)
		if magic := tensorfile.NPYHeader("f4", 0)[:6]; err != nil || len(start) > 0 && !bytes.HasPrefix(start, magic) {
			return foreign(path)
		}
	}
	switch {
	case !noted || restart:
		return fresh, nil
	case same(old.Run, run):
		return old, nil
	case old.Rows == 0:
		return fresh, nil
	}
	return fresh, fmt.Errorf("%s: found a run with another model, other texts or other flags, expected this one: --restart begins anew", note)
}

// openParts begins two files, or opens the files of an earlier run.
func openParts(out, targets string, dim int, done contextsDone) (*parts, error) {
	element, descr := int64(4), "f4"
	if done.Run.Half {
		element, descr = 2, "f2"
	}
	w := &parts{dim: dim, half: done.Run.Half, note: noteOf(out),
		states:  &part{path: out, descr: descr, cols: dim, row: element * int64(dim)},
		targets: &part{path: targets, descr: "i4", row: 4}}
	if done.Rows == 0 { // the progress tells that the parts are of a run
		if err := w.keep(done); err != nil {
			return nil, err
		}
	}
	for _, p := range []*part{w.states, w.targets} {
		if err := p.open(done.Rows); err != nil {
			w.close()
			return nil, err
		}
	}
	w.rows, w.saved = done.Rows, done.Rows
	return w, nil
}

func same(a, b contextsRun) bool {
	return a.Model == b.Model && slices.Equal(a.Texts, b.Texts) && a.Window == b.Window && a.Warmup == b.Warmup && a.States == b.States && a.Written == b.Written && a.Most == b.Most && a.Half == b.Half && a.Fast == b.Fast
}

func (p *part) open(rows int) error {
	if info, err := os.Stat(p.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: found no regular file, expected one, or none", p.path)
	}
	f, err := os.OpenFile(partOf(p.path), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	size := headerBytes + int64(rows)*p.row
	if info, err := f.Stat(); err != nil || rows > 0 && info.Size() < size {
		f.Close()
		return fmt.Errorf("%s.part: found fewer than %d rows, expected the rows of the earlier run: --restart begins anew", p.path, rows)
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return err
	}
	if _, err := f.WriteAt(p.header(rows), 0); err != nil {
		f.Close()
		return err
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		f.Close()
		return err
	}
	p.file, p.w = f, bufio.NewWriterSize(f, 1<<20)
	return nil
}

// add writes states and the tokens that followed them.
func (w *parts) add(states []float32, follow []int32) error {
	if len(states) != len(follow)*w.dim {
		return fmt.Errorf("found %d numbers of states, expected %d", len(states), len(follow)*w.dim)
	}
	w.buf = w.buf[:0]
	for i, x := range states {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("state %d: found %v, expected finite numbers", w.rows+i/w.dim, x)
		}
		if !w.half {
			w.buf = binary.LittleEndian.AppendUint32(w.buf, math.Float32bits(x))
			continue
		}
		b, ok := float16.Narrow(x)
		if !ok {
			return fmt.Errorf("state %d: found %v, expected numbers of float16: leave --float16 out", w.rows+i/w.dim, x)
		}
		w.buf = binary.LittleEndian.AppendUint16(w.buf, b)
	}
	if _, err := w.states.w.Write(w.buf); err != nil {
		return err
	}
	w.buf = w.buf[:0]
	for _, id := range follow {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(id))
	}
	if _, err := w.targets.w.Write(w.buf); err != nil {
		return err
	}
	w.rows += len(follow)
	return nil
}

// save makes the added states durable, and notes them.
func (w *parts) save(done contextsDone) error {
	for _, p := range []*part{w.states, w.targets} {
		if err := p.w.Flush(); err != nil {
			return err
		}
	}
	if err := w.keep(done); err != nil {
		return err
	}
	w.saved = w.rows
	return nil
}

// keep writes the progress.
func (w *parts) keep(done contextsDone) error {
	return atomicfile.WriteFile(w.note, func(to io.Writer) error { return json.NewEncoder(to).Encode(done) })
}

// finish gives the files their names.
func (w *parts) finish() error {
	for _, p := range []*part{w.states, w.targets} {
		if err := p.w.Flush(); err != nil {
			return err
		}
		if _, err := p.file.WriteAt(p.header(w.rows), 0); err != nil {
			return err
		}
		if err := p.file.Sync(); err != nil {
			return err
		}
	}
	for _, p := range []*part{w.targets, w.states} {
		if err := os.Rename(partOf(p.path), p.path); err != nil {
			return err
		}
	}
	return os.Remove(w.note)
}

func (w *parts) close() {
	for _, p := range []*part{w.states, w.targets} {
		if p.file != nil {
			p.file.Close()
		}
	}
}
