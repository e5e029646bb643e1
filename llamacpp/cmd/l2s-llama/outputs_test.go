package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// content maps the names in a folder to what is there.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if e.Type()&fs.ModeSymlink != 0 {
			all[path], err = os.Readlink(path)
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// No verb writes over a file that it reads, whatever names they have, and no verb changes a file
// when it refuses to. It refuses before it opens a model, so that the files need no content.
func TestOutputsThatAreInputs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"k.gguf", "x.txt", "y.txt", "heads/w.gguf", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf", "k.gguf.l2p",
		"ids.txt", "prompt.txt", "head.npz", "lib/libllama.so", "z.npy.part", ".z.npy.tmp-12", ".z.npy.part.json.tmp-7"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("precious "+name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for link, to := range map[string]string{"link": "k.gguf", "here": "."} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip(err)
		}
	}
	if err := os.Link("k.gguf", "hard"); err != nil {
		t.Skip(err)
	}
	contexts := func(model, text, out, targets string, more ...string) []string {
		return append([]string{"contexts", "--model", model, "--text", text, "--out", out, "--targets", targets}, more...)
	}
	learns := func(verb string, more ...string) []string {
		return append([]string{verb, "--model", "k.gguf", "--learn"}, more...)
	}
	before := content(t, dir)
	for _, c := range []struct {
		args []string
		want string
	}{
		{contexts("k.gguf", "x.txt", "k.gguf", "t.npy"), "--out k.gguf would replace the input k.gguf: give another --out"},
		{contexts("k.gguf", "x.txt", "h.npy", "k.gguf"), "--targets k.gguf would replace the input k.gguf: give another --targets"},
		{contexts("k.gguf", "x.txt", "./k.gguf", "t.npy"), "--out ./k.gguf would replace the input k.gguf"},
		{contexts("k.gguf", "x.txt", "x.txt", "t.npy"), "--out x.txt would replace the input x.txt"},
		{contexts("k.gguf", "x.txt", "h.npy", "y.txt", "y.txt"), "--targets y.txt would replace the input y.txt"},
		{contexts("k.gguf", "x.txt", "link", "t.npy"), "--out link would replace the input k.gguf"},
		{contexts("link", "x.txt", "k.gguf", "t.npy"), "--out k.gguf would replace the input link"},
		{contexts("k.gguf", "x.txt", "hard", "t.npy"), "--out hard would replace the input k.gguf"},
		{contexts("k.gguf", "x.txt", "here/k.gguf", "t.npy"), "--out here/k.gguf would replace the input k.gguf"},
		{contexts("s-00001-of-00002.gguf", "x.txt", "s-00002-of-00002.gguf", "t.npy"), "would replace the input s-00001-of-00002.gguf"},
		{contexts("k.gguf", "x.txt", "head.npz", "t.npy", "--written", "1", "--head", "head.npz:w"), "--out head.npz would replace the input head.npz:w"},
		{contexts("k.gguf", "x.txt", "k.gguf.l2p", "t.npy", "--written", "1", "--fast"), "--out k.gguf.l2p would replace the input k.gguf.l2p"},
		{contexts("k.gguf", "x.txt", "lib/libllama.so", "t.npy", "--lib", "lib"), "--out lib/libllama.so would replace the input lib/libllama.so"},
		{contexts("k.gguf", "z.npy.part", "z.npy", "t.npy"), "z.npy.part, where the work of the run is kept, would replace the input z.npy.part"},
		{contexts("k.gguf", ".z.npy.part.json.tmp-7", "z.npy", "t.npy"), "has the name of a temporary file of z.npy.part.json"},
		{contexts("k.gguf", "x.txt", "h.npy", "./h.npy"), "--out h.npy and --targets ./h.npy are the same file"},
		{contexts("k.gguf", "x.txt", "h.npy", "h.npy.part"), "are the same file: give another --out"},
		{learns("bench", "--text", "x.txt", "--svg", "k.gguf"), "--svg k.gguf would replace the input k.gguf"},
		{learns("bench", "--text", "x.txt", "--svg", "x.txt"), "--svg x.txt would replace the input x.txt"},
		{learns("bench", "--text", "x.txt", "--svg", "a.svg", "--learned", "here/a.svg"), "--svg a.svg and --learned here/a.svg are the same file"},
		{learns("bench", "--text", "x.txt", "--head", "w.gguf", "--svg", "w.gguf"), "--svg w.gguf would replace the input w.gguf"},
		{learns("bench", "--text", "x.txt", "--learned", "hard"), "--learned hard would replace the input k.gguf"},
		{learns("generate", "--prompt", "a", "--learned", "k.gguf"), "--learned k.gguf would replace the input k.gguf"},
		{learns("generate", "--file", "prompt.txt", "--learned", "prompt.txt"), "--learned prompt.txt would replace the input prompt.txt"},
		{learns("generate", "--prompt", "a", "--allow", "5,@ids.txt", "--learned", "ids.txt"), "found \"precious\""},
	} {
		if strings.Contains(c.want, "precious") { // ids are read first, and the file has none: give it some
			if err := os.WriteFile("ids.txt", []byte("1 2"), 0o666); err != nil {
				t.Fatal(err)
			}
			before, c.want = content(t, dir), "--learned ids.txt would replace the input ids.txt"
		}
		if _, text := runs(t, context.Background(), 2, c.args...); !strings.Contains(text, c.want) {
			t.Errorf("%v: found %q, expected %q", c.args, text, c.want)
		}
		if after := content(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("%v: found other files than before", c.args)
		}
	}
}

// A file with the name of the state of a run that no run has left is not replaced, and files that
// an interrupted run has left are.
func TestForeignFilesOfAState(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	model := file{"m.gguf", 5, time.Unix(5, 0).UTC()}
	run := contextsRun{Model: model, Window: 8}
	note := func(done contextsDone) []byte {
		text, err := json.Marshal(done)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	const foreign = "found another kind of file, expected the state of an interrupted run: move it away"
	array := []byte("\x93NUMPY...")
	for name, c := range map[string]struct {
		files   map[string][]byte
		restart bool
		want    string // of the error
		rows    int
	}{
		"nothing":                           {want: ""},
		"notes beside the states":           {files: map[string][]byte{"v.part": []byte("precious notes")}, want: in("v.part") + ": " + foreign},
		"an array of another program":       {files: map[string][]byte{"t.part": array}, want: in("t.part") + ": " + foreign},
		"the same, with --restart":          {files: map[string][]byte{"v.part": array}, restart: true, want: in("v.part") + ": " + foreign},
		"notes in the place of progress":    {files: map[string][]byte{"v.part.json": []byte("precious")}, restart: true, want: in("v.part.json") + ": " + foreign},
		"another JSON there":                {files: map[string][]byte{"v.part.json": []byte(`{"rows": 5}`)}, restart: true, want: in("v.part.json") + ": " + foreign},
		"a run":                             {files: map[string][]byte{"v.part.json": note(contextsDone{Run: run, Rows: 7}), "v.part": array, "t.part": array}, rows: 7},
		"a run, with --restart":             {files: map[string][]byte{"v.part.json": note(contextsDone{Run: run, Rows: 7}), "v.part": array, "t.part": array}, restart: true},
		"a run that has just begun":         {files: map[string][]byte{"v.part.json": note(contextsDone{Run: contextsRun{Model: model}}), "v.part": {}}},
		"notes beside a run":                {files: map[string][]byte{"v.part.json": note(contextsDone{Run: run, Rows: 7}), "v.part": array, "t.part": []byte("precious")}, restart: true, want: in("t.part") + ": " + foreign},
		"a run of another model":            {files: map[string][]byte{"v.part.json": note(contextsDone{Run: contextsRun{Model: file{Path: "x"}}, Rows: 7})}, want: "--restart begins anew"},
		"a run of another model, --restart": {files: map[string][]byte{"v.part.json": note(contextsDone{Run: contextsRun{Model: file{Path: "x"}}, Rows: 7})}, restart: true},
	} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for path, b := range c.files {
			if err := os.WriteFile(in(path), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		done, err := earlierRun(in("v"), in("t"), run, c.restart)
		if found := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(found, c.want) || err == nil && done.Rows != c.rows {
			t.Errorf("%s: found %d rows and the error %v, expected %d and %q", name, done.Rows, err, c.rows, c.want)
		}
		if err != nil {
			continue
		}
		// Killed at any moment, a run leaves what the next one takes for its own.
		w, err := openParts(in("v"), in("t"), 3, contextsDone{Run: run})
		if err != nil {
			t.Fatal(err)
		}
		w.close()
		if _, err := earlierRun(in("v"), in("t"), run, false); err != nil {
			t.Errorf("%s: after a run that was killed at once: found the error %v", name, err)
		}
	}
}

// The verb refuses them before it opens the model.
func TestContextsKeepsForeignFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"k.gguf", "x.txt", "v.npy.part"} {
		if err := os.WriteFile(name, []byte("precious notes"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"contexts", "--model", "k.gguf", "--text", "x.txt", "--out", "v.npy", "--targets", "t.npy"}
	for _, more := range [][]string{nil, {"--restart"}} {
		if _, text := runs(t, context.Background(), 1, append(slices.Clone(args), more...)...); !strings.Contains(text, "v.npy.part: found another kind of file") {
			t.Errorf("%v: found %q, expected the file to be refused", more, text)
		}
		if b, err := os.ReadFile("v.npy.part"); err != nil || !bytes.Equal(b, []byte("precious notes")) {
			t.Fatalf("%v: found %q, %v, expected the notes", more, b, err)
		}
	}
}

// A preview replaces a preview, whatever its state, and no other file; if it cannot be kept next to
// the model, the start says so before the preview is made, and keeps it in the cache.
func TestThePlaceOfAPreview(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("HOME", dir) // of systems that have the cache there
	model := filepath.Join(dir, "m.gguf")
	path := model + ".l2p"
	place := func() (string, string, error) {
		var said bytes.Buffer
		f := &flags{model: model, stderr: &said}
		at, release, err := f.holdPreview(context.Background())
		if err == nil {
			release()
		}
		return at, said.String(), err
	}
	for name, text := range map[string]string{"none": "", "a preview": previewMagic + "rest", "a preview that is cut": previewMagic[:3]} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if at, said, err := place(); at != path || said != "" || err != nil {
			t.Errorf("%s: found %s, %q, %v, expected %s", name, at, said, err, path)
		}
	}
	for _, text := range []string{"precious notes", "G", "version https://git-lfs.github.com/spec/v1", "\x89L2S\r\n\x1a\n"} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if at, _, err := place(); fmt.Sprint(err) != path+": found another kind of file, expected a preview: move it away" {
			t.Errorf("%q: found %s and the error %v, expected it refused", text, at, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("found %q, %v, expected %q as before", b, err, text)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	cache := (&flags{model: model}).previewPaths()[1]
	if at, said, err := place(); at != cache || !strings.Contains(said, path+": cannot be written: found a folder") || !strings.Contains(said, "it is kept in "+cache) || err != nil {
		t.Errorf("a folder: found %s, %q, %v, expected %s, and why", at, said, err, cache)
	}
}
