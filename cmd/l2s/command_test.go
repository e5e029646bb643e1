package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

// asCommand, set in the environment, makes the test binary the command, so that the tests see the
// same as a shell: exit status, both outputs, files.
const asCommand = "L2S_TEST_AS_COMMAND"

// heldAt, set in the environment of a command, is a part of its standard error at which the command
// waits, once: for an interrupt, or until the file of heldBy is gone. So a test can act at that
// point on a machine of any speed.
const (
	heldAt = "L2S_TEST_HELD_AT"
	heldBy = "L2S_TEST_HELD_BY"
)

// held is a standard error with such a point.
type held struct {
	ctx      context.Context
	text     strings.Builder
	at, file string
}

func (h *held) Write(b []byte) (int, error) {
	h.text.Write(b)
	n, err := os.Stderr.Write(b)
	if h.at == "" || !strings.Contains(h.text.String(), h.at) {
		return n, err
	}
	h.at = ""
	for h.ctx.Err() == nil {
		if _, err := os.Stat(h.file); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return n, err
}

// hold has a command wait where its standard error has a part, for an interrupt or for the call of
// the function that it returns.
func hold(t *testing.T, cmd *exec.Cmd, at string) (release func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "held")
	writeFile(t, file, nil)
	cmd.Env = append(cmd.Env, heldAt+"="+at, heldBy+"="+file)
	return func() { os.Remove(file) }
}

// ofTimes is a variable of the environment with which the command of a test warns of times.
const ofTimes = "L2S_TEST_WARNS_OF_TIMES"

func TestMain(m *testing.M) {
	benchBlock, warnsOfTimes = 2*time.Millisecond, os.Getenv(ofTimes) != ""
	if at := os.Getenv(heldAt); os.Getenv(asCommand) != "" && at != "" {
		ctx, stop := signal.NotifyContext(context.Background(), cmdline.Interrupts()...)
		context.AfterFunc(ctx, stop)
		os.Exit(run(ctx, os.Args[1:], os.Stdout, &held{ctx: ctx, at: at, file: os.Getenv(heldBy)}))
	}
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	code := m.Run()
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// result is the result of a run of the command.
type result struct {
	code           int
	stdout, stderr string
}

// command returns the command with the given arguments, to be run in dir.
func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// finish runs a command to its end.
func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// l2s runs the command in dir.
func invoke(t *testing.T, dir string, args ...string) result {
	t.Helper()
	return finish(t, command(t, dir, args...))
}

// succeed runs the command in dir and returns its standard output.
func succeed(t *testing.T, dir string, args ...string) string {
	t.Helper()
	r := invoke(t, dir, args...)
	if r.code != 0 {
		t.Fatalf("l2s %s: exit status %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// object runs the command in dir and returns the JSON object it prints.
func object(t *testing.T, dir string, args ...string) map[string]any {
	t.Helper()
	return parseObject(t, succeed(t, dir, args...))
}

func parseObject(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("found %q, expected a JSON object: %v", text, err)
	}
	return o
}

// expectFields checks that an object has all of these fields.
func expectFields(t *testing.T, o map[string]any, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, ok := o[name]; !ok {
			t.Errorf("found the fields %v, expected %s too", slices.Sorted(maps.Keys(o)), name)
		}
	}
}

// expectIn expects each of some texts in another.
func expectIn(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("found no %q in\n%s", w, text)
		}
	}
}

// number returns a field that holds a number.
func number(t *testing.T, o map[string]any, path ...string) float64 {
	t.Helper()
	var v any = o
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	x, ok := v.(float64)
	if !ok {
		t.Fatalf("%s: found %v, expected a number", strings.Join(path, "."), v)
	}
	return x
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// listFolder returns the names in a folder, including hidden ones.
func listFolder(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// The data that the tests share: a layer, contexts in clusters, and a screen.
const (
	tinyLabels   = 300
	tinyDim      = 12
	tinyClusters = 6
	tinyTrain    = 900
	tinyTest     = 1200 // at least the 1,000 that bench asks for
)

var shared struct {
	once sync.Once
	dir  string
	err  error
}

// files returns a new folder with the shared files. They may be changed.
//
//	W.npy b.npy        the layer; layer.safetensors has both, as weight and bias
//	H.npy T.npy        contexts to train on, and others
//	words.txt          a word for each label
//	vocab.txt text.txt words for fewer labels, and a text
//	options.json       the options of a short training
//	m.l2s              a screen for the layer, of this training
func files(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() { shared.err = makeFiles() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	dir := t.TempDir()
	for _, name := range listFolder(t, shared.dir) {
		writeFile(t, filepath.Join(dir, name), readFile(t, filepath.Join(shared.dir, name)))
	}
	return dir
}

func makeFiles() (err error) {
	if shared.dir, err = os.MkdirTemp("", "l2s-test"); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(shared.dir, name) }
	rng := rand.New(rand.NewPCG(1, 2))
	normal := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * rng.NormFloat64())
		}
		return x
	}
	centres := normal(tinyClusters*tinyDim, 1)
	around := func(n int) []float32 {
		h := normal(n*tinyDim, 0.25)
		for i := range n {
			c := i % tinyClusters
			for j := range tinyDim {
				h[i*tinyDim+j] += centres[c*tinyDim+j]
			}
		}
		return h
	}
	w, b := normal(tinyLabels*tinyDim, 1), normal(tinyLabels, 0.5)

	words := func(n int) []byte {
		var s strings.Builder
		s.WriteString("<unk>\n<eos>\n")
		for i := 2; i < n; i++ {
			fmt.Fprintf(&s, "w%d\n", i)
		}
		return []byte(s.String())
	}
	var text strings.Builder
	for i := range 60 {
		fmt.Fprintf(&text, "w%d w%d unheard w%d\n", 2+i%30, 2+7*i%31, 2+11*i%37)
	}
	for _, err := range []error{
		tensorfile.WriteNPY(in("W.npy"), w, tinyLabels, tinyDim),
		tensorfile.WriteNPY(in("b.npy"), b, tinyLabels),
		gguftest.WriteSafetensors(in("layer.safetensors"),
			gguftest.Array{Name: "weight", Shape: []int{tinyLabels, tinyDim}, Data: w},
			gguftest.Array{Name: "bias", Shape: []int{tinyLabels}, Data: b}),
		tensorfile.WriteNPY(in("H.npy"), around(tinyTrain), tinyTrain, tinyDim),
		tensorfile.WriteNPY(in("T.npy"), around(tinyTest), tinyTest, tinyDim),
		os.WriteFile(in("words.txt"), words(tinyLabels), 0o666),
		os.WriteFile(in("vocab.txt"), words(40), 0o666),
		os.WriteFile(in("text.txt"), []byte(text.String()), 0o666),
		os.WriteFile(in("options.json"), []byte(tinyOptions), 0o666),
	} {
		if err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, append([]string{"train", "--out", "m.l2s"}, trainArgs()...)...)
	cmd.Dir, cmd.Env = shared.dir, append(os.Environ(), asCommand+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("l2s train: %w\n%s", err, out)
	}
	return nil
}

// layerArgs name the shared layer.
func layerArgs() []string { return []string{"--weights", "W.npy", "--bias", "b.npy"} }

// testArgs name the shared layer and the contexts not trained on.
func testArgs() []string { return append(layerArgs(), "--contexts", "T.npy") }

// tinyOptions are the options of a short training.
const tinyOptions = `{"clusters": 6, "iterations": 2, "budget": 40}`

// trainArgs are the arguments of a short training on the shared files.
func trainArgs() []string {
	return append(layerArgs(), "--contexts", "H.npy", "--options", "options.json")
}

// options are the arguments of tinyOptions with changes: the fields of a JSON object.
func options(t *testing.T, changes string) []string {
	t.Helper()
	all := map[string]any{}
	for _, text := range []string{tinyOptions, changes} {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "options.json")
	writeFile(t, path, text)
	return []string{"--options", path}
}

// without returns the arguments without a flag and its values.
func without(args []string, flag string) []string {
	args = slices.Clone(args)
	for at := slices.Index(args, flag); at >= 0; at = slices.Index(args, flag) {
		args = slices.Delete(args, at, at+2)
	}
	return args
}

// joined joins arguments.
func joined(parts ...any) []string {
	var all []string
	for _, p := range parts {
		list, ok := p.([]string)
		if !ok {
			list = []string{p.(string)}
		}
		// All values of --contexts count, where of other flags the last one does.
		if slices.Contains(list, "--contexts") {
			all = without(all, "--contexts")
		}
		all = append(all, list...)
	}
	return all
}

// levels calls f for each SIMD level that this machine can run, with the
// environment variable that forces it.
func levels(t *testing.T, f func(t *testing.T, level, env string)) {
	for _, level := range simd.Available() {
		t.Run(level.String(), func(t *testing.T) { f(t, level.String(), simd.EnvVar+"="+level.String()) })
	}
}
