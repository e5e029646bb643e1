package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/testlib"
	"github.com/learning-to-screen/l2s/train"
)

const (
	shared = "../../../../shared"
	gguf   = shared + "/data/llm-65k-gguf/llm-65k.q8_0.gguf"
)

var missing string // why the tests of the library are skipped

func TestMain(m *testing.M) {
	if _, err := os.Stat(gguf); err != nil {
		missing = "found no model " + gguf
	} else if folder, err := testlib.Get(shared+"/llama/get", "../../.."); err != nil {
		missing = err.Error()
	} else {
		os.Setenv("YZMA_LIB", folder)
	}
	if len(os.Args) > 1 && os.Args[1] == "prepare" { // as serve starts its own program
		if os.Getenv(shortText) != "" {
			ownText = shortened()
		}
		main()
	}
	if missing != "" {
		fmt.Fprintln(os.Stderr, "l2s-llama: most tests are skipped:", missing)
	}
	os.Exit(m.Run())
}

// runs runs a verb and wants an exit status.
func runs(t *testing.T, ctx context.Context, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, messages bytes.Buffer
	if found := run(ctx, args, &out, &messages); found != want {
		t.Fatalf("l2s-llama %s: found the exit status %d, expected %d: %s", strings.Join(args, " "), found, want, messages.String())
	}
	return out.String(), messages.String()
}

func need(t *testing.T) {
	t.Helper()
	if missing != "" {
		t.Skip(missing)
	}
	if err := llamacpp.Load(""); err != nil { // before tests that open a model by themselves
		t.Fatal(err)
	}
}

// The version needs no model and no library, and is the same as text and as JSON.
func TestVersion(t *testing.T) {
	text, _ := runs(t, context.Background(), 0, "version")
	out, _ := runs(t, context.Background(), 0, "version", "--json")
	var v struct{ Version, Level string }
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Version == "" || !strings.Contains(text, v.Version) || !strings.Contains(text, v.Level) {
		t.Errorf("found %q and %q (%v), expected the same version and level in both", text, out, err)
	}
	runs(t, context.Background(), 2, "version", "--model", "M.gguf")
}

// Wrong use is found before a preview is made, which takes a minute.
func TestWhatIsWrongIsFoundEarly(t *testing.T) {
	model := fastModel(t)
	for _, c := range []struct {
		status int
		args   []string
		want   string
	}{
		{2, []string{"generate", "--prompt", "a", "--ban", "1,4000000"}, "--ban: found token 4000000, expected one below the 65536 of the head"},
		{2, []string{"generate", "--prompt", "a", "--allow", "70000"}, "--allow: found token 70000"},
		{1, []string{"generate", "--prompt", "a", "--ban", "1", "--head", "no-such-folder"}, "no-such-folder"},
		{1, []string{"generate", "--prompt", "a", "--chat", "--chat-template", "no such"}, "no such file or directory, expected the file of a template in Jinja, or a name"},
		{1, []string{"generate", "--prompt", "a", "--text", "no-such.txt"}, "no-such.txt"},
		{1, []string{"serve", "--addr", "127.0.0.1:0", "--chat-template", "no such"}, "no such file or directory, expected the file of a template in Jinja, or a name"},
		{1, []string{"bench", "--screen", "no-such.l2s"}, "no-such.l2s"},
		{1, []string{"compare", "--text", model, "--screen", "no-such.l2s"}, "no-such.l2s"},
	} {
		_, text := runs(t, context.Background(), c.status, append(slices.Clone(c.args), "--model", model, "--fast", "--threads", "1")...)
		if !strings.Contains(text, c.want) || strings.Contains(text, "states of texts") {
			t.Errorf("%v: found %q, expected %q before a preview is made", c.args, text, c.want)
		}
		if _, err := os.Stat(model + ".l2p"); err == nil {
			t.Fatalf("%v: found a preview", c.args)
		}
	}
	text := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(text, []byte("a"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, why := runs(t, context.Background(), 1, "bench", "--model", model, "--learn", "--text", text, "--svg", filepath.Join(t.TempDir(), "no", "such.svg")); !strings.Contains(why, "such.svg") {
		t.Errorf("a picture that cannot be written: found %q", why)
	}
}

func TestWrongUse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"generat"}, `found the verb "generat"`},
		{[]string{"generate"}, "found no --model"},
		{[]string{"generate", "--model", "m.gguf"}, "--prompt"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--budget", "9"}, "without --screen or --fast"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--threads", "-1"}, "--threads"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--tempo", "1"}, "-tempo"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "text"}, `the argument "text"`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--learn", "--top-k", "0"}, "--learn: found --top-k 0, --repeat-last-n 64"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--learn", "--temp", "0", "--repeat-penalty", "1.1", "--repeat-last-n", "-1"}, "--learn: found --top-k 40, --repeat-last-n -1"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--temp", "-1"}, "--temp: found -1, expected 0 to 1000000"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--temp", "NaN"}, "--temp: found NaN"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--top-k", "-1"}, "--top-k: found -1, expected 0 or more: 0 draws among all"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--top-p", "2"}, "--top-p: found 2, expected more than 0, and at most 1"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--top-p", "0"}, "--top-p: found 0"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--min-p", "3"}, "--min-p: found 3, expected 0 to 1"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--repeat-penalty", "0"}, "--repeat-penalty: found 0, expected 0.01 to 100"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--presence-penalty", "101"}, "--presence-penalty: found 101, expected -100 to 100"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--frequency-penalty", "-Inf"}, "--frequency-penalty: found -Inf"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--repeat-last-n", "-2"}, "--repeat-last-n: found -2, expected -1 or more"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--ban", "x"}, "--ban: found \"x\", expected ids"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--allow", "1,,2"}, "--allow: found \"\", expected ids"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--seed", "x"}, "for flag -seed"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--keep", "-2"}, "--keep: found -2, expected -1 or more"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--learn", "--keep", "m.l2s"}, `invalid value "m.l2s" for flag -keep`},
		{[]string{"contexts", "--model", "m.gguf"}, "found no --text"},
		{[]string{"contexts", "--model", "m.gguf", "--text", "a"}, "--out"},
		{[]string{"contexts", "--model", "m.gguf", "--text", "a", "--out", "h", "--targets", "./h"}, "--out h and --targets ./h are the same file: give another --targets"},
		{[]string{"contexts", "--model", "m.gguf", "--text", "a", "--out", "h", "--targets", "t", "--window", "9", "--warmup", "8"}, "--window"},
		{[]string{"bench", "--model", "m.gguf", "--rounds", "0"}, "--rounds"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--threads", "1000000"}, "--threads: found 1000000, expected 0 to 512"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--context", "9223372036854775807"}, "--context: found 128 and 9223372036854775807, expected -1 or more and 0 to 16777216"},
		{[]string{"contexts", "--model", "m.gguf", "--text", "a", "--out", "h", "--targets", "t", "--window", "9223372036854775807"}, "--window, --written: found 9223372036854775807 and 0, expected at most 16777216"},
		{[]string{"contexts", "--model", "m.gguf", "--text", "a", "--out", "h", "--targets", "t", "--written", "9223372036854775807"}, "expected at most 16777216"},
		{[]string{"contexts", "--model", "m.gguf", "--text", "a", "--out", "h", "--targets", "t", "--warmup", "9223372036854775807"}, "--window, --warmup"},
		{[]string{"compare", "--model", "m.gguf", "--text", "a", "--n", "9223372036854775807"}, "at most 16777216"},
		{[]string{"compare", "--model", "m.gguf", "--text", "a", "--prompt-tokens", "9223372036854775807"}, "at most 16777216"},
		{[]string{"bench", "--model", "m.gguf", "--tokens", "9223372036854775807"}, "expected 1 to 16777216"},
		{[]string{"bench", "--model", "m.gguf", "--learn"}, "--text"},
		{[]string{"bench", "--model", "m.gguf", "--tasks", "greedy,wrong"}, "--tasks: found \"wrong\", expected some of greedy,sampled,"},
		{[]string{"bench", "--model", "m.gguf", "--tasks", ""}, "--tasks: found \"\""},
		{[]string{"bench", "--model", "m.gguf", "--tasks", "draft,greedy,draft"}, "--tasks: found \"draft\" twice"},
		{[]string{"bench", "--model", "m.gguf", "--tokens", "128"}, "--tokens: found 128, expected 1 to 127"},
		{[]string{"bench", "--model", "m.gguf", "--svg", "a.svg"}, "--learn"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--learn", "--screen", "m.l2s"}, "one of them"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--learned", "m.l2s"}, "without --learn"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--fast", "--screen", "m.l2s"}, "found --fast and --screen"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--fast", "--learn"}, "found --fast and --learn"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--anew"}, "found --anew without --fast"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--text", "a.txt"}, "found --text without --fast"},
		{[]string{"bench", "--model", "m.gguf", "--text", "a.txt"}, "--text alone goes with --fast"},
		{[]string{"contexts", "--model", "m.gguf", "--text", "a", "--out", "h", "--targets", "t", "--fast"}, "found --fast without --written"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--system", "b"}, "without --chat"},
		{[]string{"serve"}, "found no --model"},
		{[]string{"prepare"}, "found no --model"},
		{[]string{"prepare", "--model", "m.gguf", "--text", ""}, `--text: found "", expected a file`},
		{[]string{"serve", "--model", "m.gguf", "--fast", "--screen", "m.l2s"}, "found --fast and --screen"},
		{[]string{"serve", "--model", "m.gguf", "--text", "a"}, "found --text without --fast"},
		{[]string{"serve", "--model", "m.gguf", "--parallel", "0"}, "--parallel, --waiting: found 0 and 32"},
		{[]string{"serve", "--model", "m.gguf", "--waiting", "-1"}, "--parallel, --waiting: found 4 and -1"},
		{[]string{"serve", "--model", "m.gguf", "--max-body", "0"}, "--max-body"},
		{[]string{"serve", "--model", "m.gguf", "--timeout", "0s"}, "--grace, --timeout"},
		{[]string{"serve", "--model", "m.gguf", "--cache", "-2"}, "--cache: found -2, expected -1 to"},
		{[]string{"serve", "--model", "m.gguf", "--audit", "2"}, "--audit: found 2"},
		{[]string{"serve", "--model", "m.gguf", "--context", "-1"}, "--context: found -1"},
		{[]string{"serve", "--model", "m.gguf", "--addr", ""}, `--addr: found "", expected host:port`},
		{[]string{"serve", "--model", "m.gguf", "--addr", "localhost"}, `--addr: found "localhost", expected host:port`},
		{[]string{"compare", "--model", "m.gguf"}, "found no --text"},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "-n", "0x10"}, `invalid value "0x10" for flag -n: expected a whole number in decimal digits`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "-n", "1_0"}, `invalid value "1_0" for flag -n`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--seed", "0b1"}, `invalid value "0b1" for flag -seed`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--temp", "0x1p-1"}, `invalid value "0x1p-1" for flag -temp: expected a number in decimal digits`},
		{[]string{"generate", "--model", "", "--prompt", "a"}, `--model: found "", expected a file`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--allow", ""}, `--allow: found "", expected ids`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--ban", ""}, `--ban: found "", expected ids`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--screen", ""}, `--screen: found "", expected a file`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--head", ""}, `--head: found "", expected a source`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--lib", ""}, `--lib: found "", expected a folder`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--file", ""}, `--file: found "", expected a file`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--fast", "--text", ""}, `--text: found "", expected a file`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--learn", "--learned", ""}, `--learned: found "", expected a file`},
		{[]string{"generate", "--model", "m.gguf", "--prompt", "a", "--chat", "--chat-template", ""}, `--chat-template: found "", expected a file`},
		{[]string{"serve", "--model", "m.gguf", "--name", ""}, `--name: found "", expected a name`},
		{[]string{"bench", "--model", "m.gguf", "--svg", ""}, `--svg: found "", expected a file`},
		{[]string{"compare", "--model", "m.gguf", "--text", "a", "--budgets", ""}, `--budgets: found "", expected`},
		{[]string{"contexts", "--model", "m.gguf", "--text", "", "--out", "h", "--targets", "t"}, `invalid value "" for flag -text`},
		{[]string{"contexts", "--model", "m.gguf", "--out", "h", "--targets", "t", ""}, "found an empty argument"},
		{[]string{"contexts", "--model", "m.gguf", "--text", "a", "--out", "", "--targets", "t"}, `--out: found "", expected a file`},
		{[]string{"compare", "--model", "m.gguf", "--text", "a", "--budgets", "a", "--screen", "b"}, "--budgets"},
	} {
		out, text := runs(t, context.Background(), 2, c.args...)
		if !strings.Contains(text, c.want) {
			t.Errorf("%v: found %q, expected a sentence with %q", c.args, text, c.want)
		}
		// One line, which points to the help in place of it.
		if pointer := "l2s-llama " + c.args[0] + " -h explains the flags\n"; out != "" || c.args[0] != "generat" && (strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, pointer)) {
			t.Errorf("%v: found %q and %q, expected one line that ends with %q", c.args, out, text, pointer)
		}
	}
}

func TestHelpFitsAScreen(t *testing.T) {
	pages := [][]string{{"-h"}, {"--help"}, {"help"}}
	for _, v := range verbs {
		pages = append(pages, []string{v.name, "-h"}, []string{v.name, "--help"})
	}
	for _, args := range pages {
		text, said := runs(t, context.Background(), 0, args...)
		if said != "" || len(args) > 1 && args[0] != "version" && !strings.Contains(text, "  --model FILE ") {
			t.Errorf("%v: found %q and %q, expected the flags on standard output alone", args, text, said)
		}
		if n := strings.Count(text, "\n"); n > 40 {
			t.Errorf("%v: found %d lines, expected 40 at most, which fit a screen", args, n)
		}
		column := 0 // of the descriptions of flags
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); len(line) > 100 {
				t.Errorf("%v: found a line of %d characters, expected 100 at most: %s", args, len(line), line)
			}
			if !strings.HasPrefix(line, "  --") {
				continue
			}
			gap := strings.Index(line[2:], "  ") + 2
			at := gap + len(line[gap:]) - len(strings.TrimLeft(line[gap:], " "))
			if column == 0 {
				column = at
			}
			if gap < 2 || at != column {
				t.Errorf("%v: found text in column %d, expected %d as before: %s", args, at, column, line)
			}
		}
	}
}

// More threads than CPUs wait for each other: a verb uses no more, and reports it.
func TestThreadsAreNoMoreThanCPUs(t *testing.T) {
	old := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(old)
	for _, c := range []struct{ asked, uses int }{{0, 0}, {1, 1}, {2, 2}, {3, 2}, {512, 2}} {
		var said bytes.Buffer
		f := newFlags("bench", benchUsage, io.Discard, &said)
		if err := f.parse([]string{"--model", "m.gguf", "--threads", fmt.Sprint(c.asked)}); err != nil {
			t.Fatal(err)
		}
		want := ""
		if c.asked > 2 {
			want = fmt.Sprintf("--threads: found %d, more than the CPUs: 2 threads are used, since more would wait for each other\n", c.asked)
		}
		if f.threads != c.uses || said.String() != want {
			t.Errorf("--threads %d: found %d and %q, expected %d and %q", c.asked, f.threads, said.String(), c.uses, want)
		}
	}
}

func TestPace(t *testing.T) {
	for _, c := range []struct {
		n    int
		took time.Duration
		want string
	}{{0, 0, ""}, {0, time.Second, ""}, {3, 0, ""}, {3, 2 * time.Second, ", 1.5 per second"}} {
		if found := pace(c.n, c.took); found != c.want {
			t.Errorf("%d in %v: found %q, expected %q", c.n, c.took, found, c.want)
		}
	}
}

func TestGenerate(t *testing.T) {
	need(t)
	ctx := context.Background()
	greedy := []string{"generate", "--model", gguf, "--threads", "1", "--prompt", "The configuration file", "-n", "12", "--temp", "0", "--ignore-eos"}
	first, _ := runs(t, ctx, 0, greedy...)
	again, speeds := runs(t, ctx, 0, greedy...)
	if first != again || strings.TrimSpace(first) == "" {
		t.Errorf("found %q and %q, expected the same text twice", first, again)
	}
	if !strings.Contains(speeds, "written: 12") {
		t.Errorf("found %q, expected 12 tokens written", speeds)
	}
	drawn := append(slices.Clone(greedy[:len(greedy)-2]), "0.8", "--ignore-eos", "--seed", "7", "--repeat-penalty", "1.1")
	first, _ = runs(t, ctx, 0, drawn...)
	if again, _ = runs(t, ctx, 0, drawn...); first != again {
		t.Errorf("found %q and %q, expected the same text of one seed", first, again)
	}
	// A context that is full.
	_, speeds = runs(t, ctx, 0, append(greedy, "--context", "8")...)
	if !strings.Contains(speeds, "written: 12") {
		t.Errorf("a context of 8: found %q, expected 12 tokens written", speeds)
	}
	// What it keeps: nothing, by default, of a model that begins texts with no token; all of a chat.
	chat := []string{"--chat", "--chat-template", "chatml", "--context", "48", "-n", "60"}
	prompt := 0 // its tokens
	for _, c := range []struct {
		args []string
		kept string
	}{
		{[]string{"--context", "8"}, "the first 0 tokens and"},
		{[]string{"--context", "8", "--keep", "2"}, "the first 2 tokens and"},
		{[]string{"--context", "8", "--keep", "-1"}, "the first PROMPT tokens and"},
		{[]string{"--context", "4", "--keep", "-1"}, "the first 3 tokens and"},
		{chat, "the first PROMPT tokens and"},
		{append(slices.Clone(chat), "--keep", "5"), "the first 5 tokens and"},
	} {
		_, said := runs(t, ctx, 0, append(slices.Clone(greedy), c.args...)...)
		_, rest, _ := strings.Cut(said, "prompt: ")
		if n, err := fmt.Sscanf(rest, "%d", &prompt); n != 1 {
			t.Fatalf("%v: found %q, expected the tokens of the prompt: %v", c.args, said, err)
		}
		if want := strings.Replace(c.kept, "PROMPT", strconv.Itoa(prompt), 1); !strings.Contains(said, "was full") || !strings.Contains(said, want) {
			t.Errorf("%v: found %q, expected %q", c.args, said, want)
		}
	}
	for want, args := range map[string][]string{
		"found a prompt of":   {"generate", "--model", gguf, "--prompt", strings.Repeat("many words ", 50), "--context", "16"},
		"expected \"GGUF\"":   {"generate", "--model", "main.go", "--prompt", "a"},
		"no such file":        {"generate", "--model", gguf, "--prompt", "a", "--screen", "no-such.l2s"},
		"without tokens":      {"generate", "--model", gguf, "--file", "/dev/null"},
		"that may be written": {"generate", "--model", gguf, "--prompt", "a", "--allow", "5", "--ban", "5"},
		"by llama.cpp":        {"generate", "--model", gguf, "--prompt", "a", "--head", gguf + ":blk.0.ffn_gate.weight"},
	} {
		if out, text := runs(t, ctx, 1, args...); !strings.Contains(text, want) || strings.Contains(text, "per second") || out != "" {
			t.Errorf("%v: found %q and %q, expected a sentence with %q, and no rate", args, out, text, want)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, text := runs(t, ended, 130, greedy...); !strings.Contains(text, "interrupted") {
		t.Errorf("found %q, expected an interrupt", text)
	}
}

// words is text that a test makes.
func words(n int) string {
	list := strings.Fields("the file server name of section port configuration when a value is set and not empty an error says which")
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for i := range n {
		b.WriteString(list[random.IntN(len(list))])
		b.WriteString(" \n"[i%17/16 : i%17/16+1])
	}
	return b.String()
}

func TestContextsGoOnAfterAnInterrupt(t *testing.T) {
	need(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"a.txt": words(30_000), "b.txt": words(3_000)} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := func(out string, more ...string) []string {
		return append([]string{"contexts", "--model", gguf, "--threads", "1", "--window", "64", "--warmup", "8", "--states", "4", "--written", "1",
			"--out", in(out + ".npy"), "--targets", in(out + "-targets.npy")}, append(more, in("a.txt"), in("b.txt"))...)
	}
	runs(t, context.Background(), 0, args("whole")...)
	// An interrupt after the first chunk, when there are states to keep: on a slow machine lines of
	// progress come before it.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	messages := writerFunc(func(p []byte) (int, error) {
		var done contextsDone
		note, _ := os.ReadFile(in("parts.npy.part.json"))
		if json.Unmarshal(note, &done) == nil && done.Rows > 0 {
			cancel()
		}
		return out.Write(p)
	})
	if found := run(ctx, args("parts"), io.Discard, messages); found != 130 || !strings.Contains(out.String(), "are kept in") {
		t.Fatalf("found the exit status %d, %s, expected an interrupt", found, out.String())
	}
	if _, err := os.Stat(in("parts.npy")); err == nil {
		t.Error("found a file of states after an interrupt, expected none")
	}
	if _, text := runs(t, context.Background(), 1, args("parts", "--float16")...); !strings.Contains(text, "other flags") {
		t.Errorf("found %q, expected other flags to be refused", text)
	}
	if _, text := runs(t, context.Background(), 0, args("parts")...); !strings.Contains(text, "going on after") {
		t.Errorf("found %q, expected it to continue", text)
	}
	whole, parts := floats(t, in("whole.npy")), floats(t, in("parts.npy"))
	if len(whole) == 0 || !slices.Equal(whole, parts) {
		t.Errorf("found %d numbers after an interrupt, expected the %d of a run without, to the bit", len(parts), len(whole))
	}
	a, _ := os.ReadFile(in("whole-targets.npy"))
	b, _ := os.ReadFile(in("parts-targets.npy"))
	if len(a) == 0 || !bytes.Equal(a, b) {
		t.Error("found other targets after an interrupt")
	}
	left, err := filepath.Glob(in("*.part*"))
	if err != nil || len(left) > 0 {
		t.Errorf("found %v left, expected nothing", left)
	}
	runs(t, context.Background(), 0, args("half", "--float16", "--most", "50")...)
	half := floats(t, in("half.npy"))
	if len(half) != 50*384 {
		t.Fatalf("found %d numbers, expected 50 states", len(half))
	}
	for i, x := range half {
		if d := math.Abs(float64(x - whole[i])); d > math.Abs(float64(whole[i]))/2048+1e-7 {
			t.Fatalf("number %d: found %v as float16, expected %v rounded", i, x, whole[i])
		}
	}
}

// Two runs do not share their parts: the second is refused, and the first writes the same files as
// alone.
func TestTwoRunsOfContexts(t *testing.T) {
	need(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("a.txt"), []byte(words(20_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := func(out, targets string) []string {
		return []string{"contexts", "--model", gguf, "--threads", "1", "--window", "64", "--warmup", "8", "--states", "4", "--out", in(out), "--targets", in(targets), "--text", in("a.txt")}
	}
	runs(t, context.Background(), 0, args("h.npy", "t.npy")...)
	others := [][]string{args("two.npy", "two-t.npy"), args("two.npy", "other.npy"), args("other.npy", "two-t.npy"), args("two-t.npy", "other.npy"), append(args("two.npy", "two-t.npy"), "--restart", "--most", "5")}
	tried := false
	messages := writerFunc(func(p []byte) (int, error) {
		if !tried && bytes.Contains(p, []byte("text 1 of 1")) {
			tried = true
			for _, other := range others {
				if _, text := runs(t, context.Background(), 1, other...); !strings.Contains(text, ".part: found another run that works on it, expected none: wait for its end, or give other files") {
					t.Errorf("%v: found %q, expected the run to be refused", other, text)
				}
			}
		}
		return len(p), nil
	})
	if found := run(context.Background(), args("two.npy", "two-t.npy"), io.Discard, messages); found != 0 || !tried {
		t.Fatalf("found the exit status %d, another run tried: %t", found, tried)
	}
	for one, two := range map[string]string{"h.npy": "two.npy", "t.npy": "two-t.npy"} {
		a, _ := os.ReadFile(in(one))
		b, _ := os.ReadFile(in(two))
		if len(a) == 0 || !bytes.Equal(a, b) {
			t.Errorf("%s: found another file than of a run left alone", two)
		}
	}
	for _, pattern := range []string{"*.part*", ".*.lock"} {
		if left, err := filepath.Glob(in(pattern)); err != nil || len(left) > 0 {
			t.Errorf("found %v left, expected nothing", left)
		}
	}
}

// A run reports its progress at least every 10 s, within a chunk of text too.
func TestContextsSayHowFarTheyAre(t *testing.T) {
	c := &collector{f: &flags{}, w: &parts{}, start: time.Now().Add(-time.Hour)}
	c.done.Run.Texts = make([]file, 1)
	told := 0
	c.f.stderr = writerFunc(func(p []byte) (int, error) { told++; return len(p), nil })
	c.within()
	shown := c.shown
	c.shown = shown.Add(time.Hour) // the next calls are within 10 s, however slow this machine is
	for range 4 {
		c.within()
	}
	if told != 1 {
		t.Errorf("found %d lines, expected one and no more within 10 s", told)
	}
	c.shown = shown.Add(-noted)
	if c.within(); told != 2 {
		t.Errorf("found %d lines, expected another one after 10 s", told)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func floats(t *testing.T, path string) []float32 {
	t.Helper()
	c, release, err := heads.OpenContexts(path, 384)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	return slices.Clone(c)
}

func TestBenchAndCompare(t *testing.T) {
	need(t)
	ctx := context.Background()
	text, _ := runs(t, ctx, 0, "bench", "--model", gguf, "--threads", "1", "--tasks", "all", "--rounds", "1", "--tokens", "3", "--json")
	var b struct {
		Heads []struct {
			Head    string
			Rate    float64 `json:"tokens_per_second"`
			Speedup float64
		}
		Rows []row
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	if len(b.Heads) != 2 || b.Heads[0].Head != "llama.cpp" || b.Heads[1].Head != "exact" || !(b.Heads[1].Rate > 0) || b.Heads[0].Speedup != 1 || !(b.Heads[1].Speedup > 0) {
		t.Errorf("found %+v, expected llama.cpp and the exact head", b.Heads)
	}
	if len(b.Rows) != 17 || b.Rows[1].Head != "read" || !(b.Rows[1].Microseconds > 0) {
		t.Errorf("found %+v, expected 17 rows, the second of a plain read", b.Rows)
	}
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte(words(500)), 0o600); err != nil {
		t.Fatal(err)
	}
	text, _ = runs(t, ctx, 0, "compare", "--model", gguf, "--threads", "1", "--text", path, "--prompts", "3", "--prompt-tokens", "8", "--n", "6", "--perplexity-tokens", "20", "--json")
	var c struct{ Heads []difference }
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Heads) != 2 || c.Heads[0].Agreement != 1 || c.Heads[0].Same != 1 || math.Abs(math.Log(c.Heads[0].Perplexity/c.Heads[1].Perplexity)) > 0.05 {
		t.Errorf("found %+v, expected the exact head to be the same as itself, and nearly llama.cpp's perplexity", c.Heads)
	}
}

// An interrupt leaves the lines of the numbers of threads that are done.
func TestBenchTellsWhatItHas(t *testing.T) {
	need(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	args := []string{"bench", "--model", gguf, "--tasks", "greedy", "--rounds", "1", "--tokens", "2"}
	for _, c := range []struct {
		after string // a line that is followed by the interrupt
		want  int    // lines
		json  bool
	}{{"load", 0, false}, {"bench, 1 thread: rounds: 1, of 2 tokens for each of 4 lines in ", 5, false}, {"bench, 1 thread: rounds: 1, of 2 tokens for each of 4 lines in ", 4, true}} {
		ctx, cancel := context.WithCancel(context.Background())
		if c.after == "load" {
			cancel()
		}
		var out, all bytes.Buffer
		messages := writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte(c.after)) {
				cancel()
			}
			return all.Write(p)
		})
		now := args
		if c.json {
			now = append(slices.Clone(args), "--json")
		}
		status := run(ctx, now, &out, messages)
		cancel()
		lines := strings.Count(out.String(), "\n")
		if c.json {
			var b struct{ Rows []row }
			if err := json.Unmarshal(out.Bytes(), &b); err != nil {
				t.Errorf("%v: %v", c, err)
			}
			lines = len(b.Rows)
		}
		if status != 130 || lines != c.want || !strings.Contains(all.String(), "interrupted") || (c.want > 0) != strings.Contains(all.String(), "the lines are of 1 thread alone") {
			t.Errorf("%+v: found the status %d, %q, %q, expected an interrupt and %d lines", c, status, out.String(), all.String(), c.want)
		}
	}
}

// bench reports its turns from the first to the last.
func TestBenchSaysHowFarItIs(t *testing.T) {
	need(t)
	m, err := llamacpp.Open(gguf, llamacpp.Options{Context: 64, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	own, err := newPlain(m, 64, 64, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer own.close()
	x, err := m.Head(llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	b := &bench{m: m, exact: x, own: own, prompt: []uint32{1, 2}, tokens: 1}
	list, err := b.racers([]string{"greedy"})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	if err := b.run(context.Background(), list, 1, func(r *racer, turns int) { found = append(found, fmt.Sprint(turns, " ", r.name())) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0 no head", "1 a plain read of the head", "2 greedy by llama.cpp", "3 greedy by exact",
		"4 a plain read of the head", "5 greedy by llama.cpp", "6 greedy by exact", "7 no head",
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, expected %q", found, want)
	}
}

// A round that takes more than 10 times as long as with fewer threads, or as llama.cpp's round, is the
// last of its racer, which stops within it: its line has a time and no speedup. Other lines go on.
func TestBenchStopsHopelessLines(t *testing.T) {
	need(t)
	m, err := llamacpp.Open(gguf, llamacpp.Options{Context: 64, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	steps := map[string]int{}
	racing := func(head string, before time.Duration) *racer {
		return &racer{task: "greedy", head: head, hooked: true, per: 1, before: before, step: func(id uint32) (uint32, error) {
			steps[head]++
			time.Sleep(time.Millisecond)
			return id, nil
		}}
	}
	list := []*racer{racing("llama.cpp", time.Hour), racing("exact", time.Nanosecond), racing("preview", time.Hour)}
	b := &bench{m: m, prompt: []uint32{1, 2}, tokens: 20}
	turns := 0
	if err := b.run(context.Background(), list, 2, func(*racer, int) { turns++ }); err != nil {
		t.Fatal(err)
	}
	if steps["exact"] != 1 || steps["preview"] != 60 || steps["llama.cpp"] != 60 || turns != 9 {
		t.Errorf("found the steps %v in %d turns, expected 1 of the hopeless line and 60 of others in 9", steps, turns)
	}
	for _, r := range b.rows(list, 1) {
		if stopped := r.Head == "exact"; r.Stopped != stopped || (r.Speedup > 0) == stopped || r.Microseconds < 1000 {
			t.Errorf("found %+v, expected a time, and a speedup unless it was stopped", r)
		}
	}
	own := &racer{task: "greedy", head: "llama.cpp", warm: turn{step: time.Second}}
	for _, c := range []struct {
		of   racer
		want time.Duration
	}{
		{racer{task: "greedy", head: "exact"}, 10 * time.Second},
		{racer{task: "greedy", head: "exact", before: time.Minute}, 10 * time.Minute},
		{racer{task: "draft", head: "exact"}, 0},
		{racer{task: "greedy", head: "llama.cpp"}, 0},
	} {
		if got := c.of.most([]*racer{own, &c.of}); got != c.want {
			t.Errorf("%s by %s: found %v for the longest step, expected %v", c.of.task, c.of.head, got, c.want)
		}
	}
	own.stopped = true
	if got := list[2].most([]*racer{own}); got != 10*time.Hour {
		t.Errorf("found %v, expected the time with fewer threads", got)
	}
}

// The time of a step of the heads of l2s is the model's and the head's.
func TestBenchTellsModelAndHeadApart(t *testing.T) {
	need(t)
	text, _ := runs(t, context.Background(), 0, "bench", "--model", gguf, "--threads", "1", "--tokens", "4", "--rounds", "1", "--tasks", "greedy,draft", "--json")
	var b struct{ Rows []row }
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.Rows {
		switch {
		case r.Head == "llama.cpp" && (r.Model != 0 || r.HeadTime != 0):
			t.Errorf("found %+v, expected no parts: llama.cpp's graph has both", r)
		case r.Head != "llama.cpp" && (!(r.Model > 0) || !(r.HeadTime >= 0) || math.Abs(r.Model+r.HeadTime-r.Microseconds) > 0.01+1e-3*r.Microseconds):
			t.Errorf("found %+v, expected the parts of its time", r)
		}
	}
	table, _ := runs(t, context.Background(), 0, "bench", "--model", gguf, "--threads", "1", "--tokens", "4", "--rounds", "1")
	if !strings.Contains(table, "model us  head us") {
		t.Errorf("found %q, expected columns of the model and the head", table)
	}
}

// A head that learns is exact at first: it writes the tokens of the exact head, and bench reports
// its speed.
func TestLearn(t *testing.T) {
	need(t)
	ctx := context.Background()
	generate := []string{"generate", "--model", gguf, "--threads", "1", "--prompt", "The configuration file", "-n", "12", "--ignore-eos", "--temp"}
	for _, more := range [][]string{{"0"}, {"0", "--repeat-penalty", "1.3"}, {"0.8", "--seed", "7"}, {"0.8", "--seed", "7", "--repeat-penalty", "1.3", "--repeat-last-n", "5"}} {
		args := append(slices.Clone(generate), more...)
		want, _ := runs(t, ctx, 0, args...)
		if got, _ := runs(t, ctx, 0, append(args, "--learn")...); got != want {
			t.Errorf("%v: found %q, expected %q, as without --learn", more, got, want)
		}
	}
	if _, text := runs(t, ctx, 2, append(generate, "0.8", "--learn", "--top-k", "0")...); !strings.Contains(text, "--top-k") {
		t.Errorf("found %q, expected a word about --top-k", text)
	}
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte(words(200)), 0o600); err != nil {
		t.Fatal(err)
	}
	text, _ := runs(t, ctx, 0, "bench", "--model", gguf, "--threads", "1", "--learn", "--text", path, "--tokens", "20", "--rounds", "2", "--svg", path+".svg", "--json")
	var b struct{ Learning []stretch }
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Learning); n != 2 || b.Learning[1].Tokens != 40 || b.Learning[1].Screened != 0 || !(b.Learning[1].Speedup > 0) {
		t.Errorf("found %+v, expected two lines of 20 tokens, all exact", b.Learning)
	}
	var picture struct {
		Lines []struct {
			Points string `xml:"points,attr"`
		} `xml:"polyline"`
	}
	if b, err := os.ReadFile(path + ".svg"); err != nil || xml.Unmarshal(b, &picture) != nil || len(picture.Lines) != 2 || len(strings.Fields(picture.Lines[0].Points)) != 2 {
		t.Errorf("found %v, %+v, expected a picture of two lines", err, picture)
	}
}

// A text, states, a screen, and the text that the model writes with it.
func TestTheWholeWay(t *testing.T) {
	need(t)
	ctx, dir := context.Background(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("a.txt"), []byte(words(6000)), 0o600); err != nil {
		t.Fatal(err)
	}
	runs(t, ctx, 0, "contexts", "--model", gguf, "--threads", "1", "--out", in("h.npy"), "--targets", in("t.npy"), "--text", in("a.txt"),
		"--window", "64", "--warmup", "8", "--states", "8", "--written", "8", "--most", "800")
	layer, err := l2s.Open(gguf, l2s.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	model, _, err := train.Run(ctx, layer, l2s.Float32(floats(t, in("h.npy")), layer.Dim()), train.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := model.Save(in("m.l2s")); err != nil {
		t.Fatal(err)
	}
	screened := []string{"--model", gguf, "--threads", "1", "--screen", in("m.l2s")}
	for _, temperature := range []string{"0", "0.8"} {
		_, speeds := runs(t, ctx, 0, append([]string{"generate", "--prompt", "The file server", "-n", "8", "--ignore-eos", "--temp", temperature}, screened...)...)
		if !strings.Contains(speeds, "written: 8") {
			t.Errorf("temperature %s: found %q, expected 8 tokens written", temperature, speeds)
		}
	}
	text, _ := runs(t, ctx, 0, append([]string{"compare", "--text", in("a.txt"), "--prompts", "4", "--prompt-tokens", "24", "--n", "8", "--perplexity-tokens", "8", "--json"}, screened...)...)
	var c struct{ Heads []difference }
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if last := c.Heads[len(c.Heads)-1]; len(c.Heads) != 3 || last.Budget != budgetOf(model) || last.Agreement < 0.8 {
		t.Errorf("found %+v, expected three heads, and most tokens of the screen to be tokens of the exact head", c.Heads)
	}
	text, _ = runs(t, ctx, 0, append([]string{"bench", "--tasks", "greedy", "--rounds", "1", "--tokens", "2"}, screened...)...)
	if !strings.Contains(text, "screen") {
		t.Errorf("found %q, expected a line of the screen", text)
	}
}

func TestStarvedThreads(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		threads   int
		cpu, took time.Duration
		want      bool
	}{
		{2, 4 * s, 10 * s, true},
		{2, 19 * s, 10 * s, false}, // both had a CPU
		{2, 10 * s, 10 * s, false},
		{1, 1 * s, 10 * s, false}, // it waits for nobody
		{2, s / 10, s, false},     // too short to tell
		{2, 0, 10 * s, false},     // not known
		{4, 19 * s, 10 * s, true},
	} {
		if got := starved(c.threads, c.cpu, c.took); got != c.want {
			t.Errorf("%d threads with %v of %v: found %v, expected %v", c.threads, c.cpu, c.took, got, c.want)
		}
	}
}

// budgetOf is the budget of requests that name none.
func budgetOf(x *l2s.Index) float64 {
	steps, normal := x.Steps()
	return steps[normal].Budget
}
