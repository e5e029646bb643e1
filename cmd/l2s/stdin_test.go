package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// asJSON writes contexts as lists of JSON, each on a line of its own.
func asJSON(h []float32, dim int) string {
	var b strings.Builder
	for row := range slices.Chunk(h, dim) {
		numbers := make([]string, len(row))
		for i, x := range row {
			numbers[i] = strconv.FormatFloat(float64(x), 'g', -1, 32)
		}
		b.WriteString("[" + strings.Join(numbers, ",") + "]\n")
	}
	return b.String()
}

// What comes through a pipe is answered as what stands in a file.
func TestContextsOnStandardInput(t *testing.T) {
	dir := files(t)
	h, _, _ := rows(t, filepath.Join(dir, "T.npy"))
	lists := strings.TrimSpace(asJSON(h, tinyDim))
	forms := map[string]string{
		"lists of JSON":           lists,
		"a list of lists of JSON": "[" + strings.ReplaceAll(lists, "\n", ",\n") + "]\n",
		"a .npy file":             string(readFile(t, filepath.Join(dir, "T.npy"))),
	}
	piped := func(t *testing.T, input string, args ...string) result {
		cmd := command(t, dir, args...)
		cmd.Stdin = strings.NewReader(input)
		return finish(t, cmd)
	}
	for _, c := range []struct {
		args []string
		out  string // the file that it writes; none if it prints what it has found
	}{
		{args: joined("topk", "m.l2s", testArgs(), "--k", "3")},
		{args: joined("topk", "m.l2s", testArgs(), "--budget", "exact", "--json", "--vocab", "words.txt")},
		{args: joined("eval", "m.l2s", testArgs(), "--quiet")},
		{joined("train", trainArgs(), "--contexts", "T.npy", "--out", "out.l2s"), "out.l2s"},
		{joined("labels", layerArgs(), "--contexts", "T.npy", "--out", "out.labels", "--quiet"), "out.labels"},
	} {
		result := func(stdout string) string {
			if c.out == "" {
				return stdout
			}
			return string(readFile(t, filepath.Join(dir, c.out)))
		}
		want := result(succeed(t, dir, c.args...))
		for name, input := range forms {
			t.Run(c.args[0]+": "+name, func(t *testing.T) {
				r := piped(t, input, joined(c.args, "--contexts", "-")...)
				if r.code != 0 || result(r.stdout) != want {
					t.Errorf("found exit status %d and another result than of the file, expected the same; standard error:\n%s", r.code, r.stderr)
				}
				file := "contexts in a file"
				if name != "a .npy file" {
					file += ".json"
				}
				writeFile(t, filepath.Join(dir, file), []byte(input))
				r = l2s(t, dir, joined(c.args, "--contexts", file)...)
				if got := strings.ReplaceAll(result(r.stdout), file, "T.npy"); r.code != 0 || got != want {
					t.Errorf("by name: found exit status %d and another result, expected the same; standard error:\n%s", r.code, r.stderr)
				}
			})
		}
	}

	one := asJSON(h[:tinyDim], tinyDim)
	poison := append([]float32{}, h[:tinyDim]...)
	poison[3] = float32(math.Inf(1))
	for _, c := range []struct{ name, input, want string }{
		{"nothing", "", "standard input: found it empty, expected contexts"},
		{"no list", "1 2 3\n", `standard input: context 1: found "1", expected an array of numbers`},
		{"a number too few", one + asJSON(h[:11], 11), "standard input: context 2: found 11 numbers, expected 12, the columns of W.npy"},
		{"a number too many", asJSON(h[:13], 13), "standard input: context 1: found 13 numbers, expected 12, the columns of W.npy"},
		{"a word for a number", "[abc" + one[strings.IndexByte(one, ','):], "standard input: context 1: found no JSON: invalid character 'a' looking for beginning of value"},
		{"an infinity", one + asJSON(poison, tinyDim), "standard input: context 2: found no JSON: invalid character '+' looking for beginning of value"},
		{"a number beyond float32", "[1e39]", `standard input: context 1: found "1e39" for number 1, expected one within float32`},
		{"a short list in a list", "[[1,2]]", "standard input: context 1: found 2 numbers, expected 12, the columns of W.npy"},
		{"a number without an end", "[" + strings.Repeat("1", 1<<20), "standard input: context 1: found no end of it in 66736 bytes, expected that of its array"},
		{"a .npy file that is cut off", string(readFile(t, filepath.Join(dir, "T.npy"))[:1000]), "standard input: data: found 872 bytes, expected 57600 (shape [1200 12] of float32)"},
	} {
		for _, verb := range [][]string{goodTopK, goodEval} {
			t.Run(verb[0]+": "+c.name, func(t *testing.T) {
				r := piped(t, c.input, joined(verb, "--contexts", "-")...)
				if r.code != 1 || !strings.HasPrefix(r.stderr, "l2s "+verb[0]+": "+c.want) || strings.Count(r.stderr, "\n") != 1 {
					t.Errorf("found exit status %d and %q, expected 1 and %q", r.code, r.stderr, c.want)
				}
			})
		}
	}
}

// converse starts a command whose answers are read while more is written to it.
func converse(t *testing.T, cmd *exec.Cmd) (stdin io.WriteCloser, answers *bufio.Reader, stderr *bytes.Buffer) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return stdin, bufio.NewReader(stdout), stderr
}

// A context of JSON is answered before the next one is there.
func TestTopKAnswersLineByLine(t *testing.T) {
	dir := files(t)
	h, _, _ := rows(t, filepath.Join(dir, "T.npy"))
	want := strings.SplitAfter(succeed(t, dir, goodTopK...), "\n")
	for _, c := range []struct{ name, begin, between, end string }{{"lists", "", "", ""}, {"a list of lists", "[", ",", "]"}} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, dir, joined(goodTopK, "--contexts", "-")...)
			stdin, answers, stderr := converse(t, cmd)
			for i := range 20 {
				line := strings.TrimSpace(asJSON(h[i*tinyDim:(i+1)*tinyDim], tinyDim))
				if i == 0 {
					line = c.begin + line
				} else {
					line = c.between + "\n" + line
				}
				half := len(line) / 2
				for _, part := range []string{line[:half], line[half:]} { // a line in two pieces
					if _, err := io.WriteString(stdin, part); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := answers.ReadString('\n'); err != nil || got != want[i] {
					t.Fatalf("line %d: found %q (%v), expected %q; standard error:\n%s", i+1, got, err, want[i], stderr.String())
				}
			}
			io.WriteString(stdin, c.end)
			stdin.Close()
			if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
				t.Errorf("found %q (%v) behind the answers, expected nothing", rest, err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is wrong with a context does not cost the answers to those before it, and the
// error says how many there are.
func TestTopKSaysWhatIsThereBeforeAnError(t *testing.T) {
	dir := files(t)
	h, _, dim := rows(t, filepath.Join(dir, "T.npy"))
	all := strings.SplitAfter(succeed(t, dir, goodTopK...), "\n")
	bad := slices.Clone(h)
	bad[300*dim+1] = float32(math.NaN()) // in the second block of rows
	data := npyHead("<f4", false, len(bad)/dim, dim)
	for _, x := range bad {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	writeFile(t, filepath.Join(dir, "bad.npy"), data)
	for _, c := range []struct {
		name, contexts, stdin string
		answers               int
		want                  string
	}{
		{"in a file", "bad.npy", "", 256, "bad.npy: values: found NaN at row 300, column 1, expected finite numbers; standard output has the answers to the first 256 of 1,200 contexts"},
		{"on standard input", "-", asJSON(h[:3*dim], dim) + "[1]\n", 3, "standard input: context 4: found 1 numbers, expected 12, the columns of W.npy; standard output has the answers to the first 3 contexts"},
		{"the first", "-", "[1]\n", 0, "standard input: context 1: found 1 numbers, expected 12, the columns of W.npy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, dir, joined(goodTopK, "--contexts", c.contexts)...)
			cmd.Stdin = strings.NewReader(c.stdin)
			r := finish(t, cmd)
			if r.code != 1 || r.stderr != "l2s topk: "+c.want+"\n" || r.stdout != strings.Join(all[:c.answers], "") {
				t.Errorf("found exit status %d, the answers\n%s\nand\n%sexpected 1, %d answers, and\n%s", r.code, r.stdout, r.stderr, c.answers, c.want)
			}
		})
	}
}
