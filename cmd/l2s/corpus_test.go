package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// The corpus of bad inputs has, for each case of a failing call, the exit status and the line on
// standard error, unchanged, so that a change of an error shows. Only checksums and digests, which
// follow from the tests' data, are left out.
//
//	go test ./cmd/l2s -update
//
// writes it again. Read the changes before you commit them.
const corpusFile = "testdata/badinput.txt"

var digests = regexp.MustCompile(`\b[0-9a-f]{8,64}\b`)

var update = flag.Bool("update", false, "write "+corpusFile+" from the output of the command")

type answers struct {
	mu   sync.Mutex
	want map[string]string // by name; nil before it is read
	got  map[string]string
}

var corpus = answers{got: map[string]string{}}

// read returns the corpus: lines of a name, an exit status and the output.
func (a *answers) read() (map[string]string, error) {
	if a.want != nil {
		return a.want, nil
	}
	data, err := os.ReadFile(corpusFile)
	if err != nil {
		return nil, err
	}
	a.want = map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, answer, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || a.want[name] != "" {
			return nil, fmt.Errorf("%s: found %q, expected a name, once, and an answer", corpusFile, line)
		}
		a.want[name] = answer
	}
	return a.want, nil
}

// check compares the answer to a case with that in the corpus.
func (a *answers) check(t *testing.T, name string, r result) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := strconv.Itoa(r.code) + "\t" + digests.ReplaceAllString(strings.TrimSuffix(r.stderr, "\n"), "HEX")
	if old, ok := a.got[name]; ok && old != answer {
		t.Errorf("two cases are called %q", name)
	}
	a.got[name] = answer
	if *update {
		return
	}
	want, err := a.read()
	if err != nil {
		t.Fatal(err)
	}
	if want[name] != answer {
		t.Errorf("%s: found, for the case %q,\n%q\nexpected\n%q\n(go test ./cmd/l2s -update writes the file anew)", corpusFile, name, answer, want[name])
	}
}

// end writes the corpus, with -update, or looks for cases that are in it and were not run. Cases
// that only root, or only another user, can produce are kept.
func (a *answers) end(passed bool) error {
	all := !simdtest.Race && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && flag.Lookup("test.list").Value.String() == ""
	if *update {
		want, err := a.read()
		if err != nil {
			want = map[string]string{}
		}
		if all {
			maps.DeleteFunc(want, func(name, _ string) bool { return !strings.HasSuffix(name, readOnlyFolder) })
		}
		maps.Copy(want, a.got)
		var b bytes.Buffer
		for _, name := range slices.Sorted(maps.Keys(want)) {
			fmt.Fprintf(&b, "%s\t%s\n", name, want[name])
		}
		return os.WriteFile(corpusFile, b.Bytes(), 0o666)
	}
	if !all || !passed {
		return nil
	}
	want, err := a.read()
	if err != nil {
		return err
	}
	for name := range want {
		if _, ok := a.got[name]; !ok && !strings.HasSuffix(name, readOnlyFolder) {
			return fmt.Errorf("%s: found %q, which no test has run", corpusFile, name)
		}
	}
	return nil
}

// readOnlyFolder ends the names of the cases that root cannot produce.
const readOnlyFolder = ": a folder that is read only"

func TestCorpusOfBadInputs(t *testing.T) {
	corpus.mu.Lock()
	defer corpus.mu.Unlock()
	want, err := corpus.read()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bad calls of the command, each with its exact error", len(want))
	if len(want) < 200 {
		t.Errorf("%d bad calls, want at least 200", len(want))
	}
}
