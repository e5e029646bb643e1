package housetest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	goBlock  = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	required = regexp.MustCompile(`(?m)^\t?(?:require )?(\S+ v\S+)(?: // indirect)?$`)
	declared = regexp.MustCompile(`(?m)^([a-zA-Z, ]+) :=`)
	named    = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.[A-Z]`)
)

// importable are the packages that the code of the documents uses, by their names.
var importable = map[string]string{
	"context": "context", "log": "log", "os": "os", "pprof": "runtime/pprof", "time": "time",
	"l2s": module, "bitset": module + "/bitset", "learn": module + "/learn", "preview": module + "/preview",
	"sample": module + "/sample", "train": module + "/train",
}

// sourceOf is a Go file with imports of all that the code uses.
func sourceOf(pkg, code string) string {
	used := map[string]bool{}
	for _, m := range named.FindAllStringSubmatch(code, -1) {
		if path := importable[m[1]]; path != "" {
			used[path] = true
		}
	}
	text := "package " + pkg + "\n\n"
	for path := range used {
		text += fmt.Sprintf("import %q\n", path)
	}
	return text + "\n" + code
}

// snippets are the documents whose code is statements, with the variables that it needs.
var snippets = map[string]string{
	"docs/gguf.md":          "n int, s *l2s.Searcher, states []float32",
	"docs/head.md":          "layer *l2s.Layer, scale, softCap float64, err error",
	"docs/probabilities.md": "ctx context.Context, layer *l2s.Layer, index *l2s.Index, contexts l2s.Matrix, tokens []uint32, banned *bitset.Set, h []float32",
	"docs/service.md":       "layer, newLayer *l2s.Layer, newIndex *l2s.Index, pool *l2s.Pool, top []l2s.Prediction, h []float32",
}

// An outside module has the Go code of the documents and the examples of all public packages. It
// cannot import internal/, as no program of a user can. Its tests run the examples and, by the files
// of testdata/outside, the code of README.md and docs/go.md.
func TestAnOutsideModule(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles some ten programs")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := cmp.Or(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	goMod := "module example.org/outside\n\ngo 1.25\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + strconv.Quote(here) + "\n"
	for _, m := range required.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		goMod += "\nrequire " + m[1] + " // indirect\n"
	}
	write("go.mod", goMod)
	write("go.sum", read(t, "go.sum"))
	if err := os.CopyFS(dir, os.DirFS("testdata/outside")); err != nil {
		t.Fatal(err)
	}

	blocks := goBlock.FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(blocks) != 1 {
		t.Fatalf("README.md: found %d blocks of Go, expected 1", len(blocks))
	}
	if lines := strings.Count(blocks[0][1], "\n"); lines > 10 {
		t.Errorf("README.md: found %d lines of Go, expected at most 10", lines)
	}
	write("readme/readme.go", sourceOf("readme",
		"func readme(h []float32) (best []l2s.Prediction, err error) {\n\terr = func() error {\n"+blocks[0][1]+"best = top[:n]\nreturn err\n}()\nreturn best, err\n}\n"))

	functions := 0
	for _, b := range goBlock.FindAllStringSubmatch(read(t, "docs/go.md"), -1) {
		if strings.HasPrefix(b[1], "import (") {
			if want := fmt.Sprintf("import (\n\t%q\n\t%q\n\t%q\n\t%q\n)\n", module, module+"/bitset", module+"/preview", module+"/train"); b[1] != want {
				t.Errorf("docs/go.md: found the imports\n%sexpected\n%s", b[1], want)
			}
			continue
		}
		functions++
		write(fmt.Sprintf("gopage/block%d.go", functions), sourceOf("gopage", b[1]))
	}
	if functions != 7 {
		t.Errorf("docs/go.md: found %d functions, expected 7", functions)
	}

	for page, variables := range snippets {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		blocks := goBlock.FindAllStringSubmatch(read(t, page), -1)
		if len(blocks) == 0 {
			t.Errorf("%s: found no Go code, expected some", page)
		}
		for i, b := range blocks {
			code := fmt.Sprintf("func block%d(%s) {\n{\n%s", i, variables, b[1])
			for _, m := range declared.FindAllStringSubmatch(b[1], -1) {
				code += strings.Repeat("_, ", strings.Count(m[1], ",")) + "_ = " + m[1] + "\n"
			}
			write(fmt.Sprintf("%s/block%d.go", name, i), sourceOf(name, code+"}\n}\n"))
		}
	}

	examples := []string{}
	for pkg := range public(t) {
		text, err := os.ReadFile(filepath.Join(root, pkg, "example_test.go"))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		examples = append(examples, pkg)
		write("example/"+pkg+"/example_test.go", string(text))
	}
	slices.Sort(examples)
	if want := []string{".", "beam", "bitset", "kernels", "learn", "preview", "sample", "train"}; !slices.Equal(examples, want) {
		t.Errorf("found examples of %v, expected of %v", examples, want)
	}

	// go.sum names all that it needs.
	command := exec.Command("go", "test", "-vet=all", "./...")
	command.Dir = dir
	command.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("go test in an outside module: %v\n%s", err, out)
	}
	// The walls are there: a program outside cannot have what is internal.
	write("inside/inside.go", "package inside\n\nimport _ \""+module+"/internal/search/exact\"\n")
	command = exec.Command("go", "build", "./inside")
	command.Dir = dir
	command.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), "use of internal package") {
		t.Errorf("an import of internal/: found %v\n%s\nexpected it to be refused", err, out)
	}
}
