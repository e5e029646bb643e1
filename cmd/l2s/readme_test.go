package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

const root = "../.."

// commandsOf returns the commands in the indented blocks of a document: without
// prompts, comments and the ends of lines that go on. other are the remaining lines.
func commandsOf(text string) (commands, other []string) {
	fenced, code := false, false
	open := "" // a command that goes on
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n ")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		// An indented line is code only behind an empty one, or another such.
		indented := strings.HasPrefix(line, "    ")
		if fenced || !indented || !code && open == "" {
			code = line == "" || code && indented
			continue
		}
		line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "  # ")
		line, more := strings.CutSuffix(line, `\`)
		open += strings.TrimSpace(line) + " "
		if more {
			continue
		}
		if isCommand.MatchString(open) {
			commands = append(commands, strings.TrimSpace(open))
		} else {
			other = append(other, strings.TrimSpace(open))
		}
		open = ""
	}
	return commands, other
}

var isCommand = regexp.MustCompile(`^(l2s|make|go) `)

// words splits a command as a shell does, as far as the documents need it.
func wordsOf(command string) (list []string) {
	for _, m := range regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`).FindAllString(command, -1) {
		list = append(list, strings.Trim(m, `"'`))
	}
	return list
}

func TestCommandsOf(t *testing.T) {
	commands, other := commandsOf("text\n    no code\n\n    make a\n    $ l2s b \\\n        --c  # d\n    e\n\n```go\n\n    l2s f\n```\n\n    go g\ntext\n")
	if want := []string{"make a", "l2s b --c", "go g"}; !slices.Equal(commands, want) {
		t.Errorf("found the commands %q, expected %q", commands, want)
	}
	if want := []string{"e"}; !slices.Equal(other, want) {
		t.Errorf("found the lines %q, expected %q", other, want)
	}
}

// demoFolder leaves in a folder what l2s demo --keep does, of the shared files.
func demoFolder(t *testing.T, dir string) {
	t.Helper()
	if made, err := emptyFolder(dir); err != nil || !made {
		t.Fatal(made, err)
	}
	in := func(name string) string { return filepath.Join(filepath.Dir(dir), name) }
	w, _, dim := rows(t, in("W.npy"))
	l, err := softmax.NewLayer(kernels.Float32Rows(w, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	voc, err := vocab.Load(in("words.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// A screen for any layer: what it answers is for other tests.
	m, err := screen.NewModel(screen.Config{Dim: dim, Labels: l.Labels(), Clusters: make([]float32, dim), Lists: []screen.List{{IDs: []uint32{1, 2, 3, 4, 5}}}})
	if err != nil {
		t.Fatal(err)
	}
	learnt, _, _ := rows(t, in("H.npy"))
	heldOut, _, _ := rows(t, in("T.npy"))
	if err := keepDemo(dir, &layer{Layer: l, name: "W.npy"}, learnt, heldOut, voc, m); err != nil {
		t.Fatal(err)
	}
}

// Every command of the README does what it says there. The commands of l2s work on files
// as the demonstration leaves them, or on W.npy, b.npy and H.npy.
func TestCommandsOfTheREADME(t *testing.T) {
	commands, other := commandsOf(string(readFile(t, filepath.Join(root, "README.md"))))
	if len(other) > 0 {
		t.Errorf("README.md: found the lines %q among the commands, expected l2s, make or go", other)
	}
	dir := files(t)
	demoFolder(t, filepath.Join(dir, "demo"))
	verbs := map[string]int{}
	for _, c := range commands {
		t.Run(c, func(t *testing.T) {
			words := wordsOf(c)
			if words[0] != "l2s" {
				checkTool(t, words)
				return
			}
			verbs[words[1]]++
			if slices.Contains(words, "--head") || words[1] == "demo" {
				// Of files that are not here; and of a minute, see TestDemo.
				checkFlags(t, dir, words[1:])
				return
			}
			succeed(t, dir, words[1:]...)
		})
	}
	for _, verb := range []string{"demo", "train", "eval", "topk"} {
		if verbs[verb] == 0 {
			t.Errorf("README.md: found no command of l2s %s, expected one", verb)
		}
	}
}

// The commands of the other documents, whose files are not here, have flags that
// there are, with values that they can have.
func TestCommandsOfTheDocuments(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("found the documents %v and the error %v, expected some", names, err)
	}
	dir := t.TempDir()
	for _, name := range append(names, filepath.Join(root, "train", "RESULTS.md"), filepath.Join(root, "kernels", "PERFORMANCE.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		commands, _ := commandsOf(string(readFile(t, name)))
		for _, c := range commands {
			t.Run(filepath.Base(name)+": "+c, func(t *testing.T) {
				if words := wordsOf(c); words[0] == "l2s" {
					checkFlags(t, dir, words[1:])
				} else {
					checkTool(t, words)
				}
			})
		}
	}
}

// The table of the verbs in docs/command.md is the same as in l2s -h.
func TestTheDocumentListsEveryVerb(t *testing.T) {
	var found, want []string
	for line := range strings.Lines(string(readFile(t, filepath.Join(root, "docs", "command.md")))) {
		if strings.HasPrefix(line, "| `l2s ") {
			found = append(found, line)
		}
	}
	for _, v := range verbs() {
		want = append(want, "| `l2s "+v.name+"` | "+v.summary+" |\n")
	}
	if !slices.Equal(found, want) {
		t.Errorf("docs/command.md: found the verbs\n%s\nexpected\n%s", strings.Join(found, ""), strings.Join(want, ""))
	}
}

// checkFlags parses the arguments of a verb: -h at their end ends it there.
func checkFlags(t *testing.T, dir string, args []string) {
	t.Helper()
	if r := l2s(t, dir, append(args, "-h")...); r.code != 0 {
		t.Errorf("found exit status %d and %q, expected flags that l2s %s has", r.code, r.stderr, args[0])
	}
}

var target = regexp.MustCompile(`(?m)^([a-z-]+):`)

// checkTool checks a command of make or go: that its target, or its package, exists.
func checkTool(t *testing.T, words []string) {
	t.Helper()
	const module = "github.com/learning-to-screen/l2s"
	last, _, _ := strings.Cut(words[len(words)-1], "@")
	switch {
	case words[0] == "make":
		targets := target.FindAllStringSubmatch(string(readFile(t, filepath.Join(root, "Makefile"))), -1)
		if !slices.ContainsFunc(targets, func(m []string) bool { return m[1] == words[1] }) {
			t.Errorf("found no target %s in the Makefile", words[1])
		}
	case len(words) == 3 && (words[1] == "install" || words[1] == "get") && (last == module || strings.HasPrefix(last, module+"/")):
		if _, err := os.Stat(filepath.Join(root, strings.TrimPrefix(last, module))); err != nil {
			t.Error(err)
		}
	case words[0] == "go" && (words[1] == "run" || words[1] == "test"):
		for _, word := range words[2:] {
			if !strings.HasPrefix(word, "./") {
				continue
			}
			_, here := os.Stat(filepath.Join(root, word))
			_, there := os.Stat(filepath.Join(root, "benchmarks", word))
			if here != nil && there != nil {
				t.Errorf("found no package %s", word)
			}
		}
	default:
		t.Errorf("found a command that this test does not know")
	}
}
