package labels

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

const docs = "../../docs"

// corpus is a folder with a layer and contexts in it.
type corpus struct {
	dir string
	l2s string // the command
}

// newCorpus builds the command and writes a layer and n contexts under the names of the
// recipes.
func newCorpus(t *testing.T, labels, dim, n int) *corpus {
	t.Helper()
	c := &corpus{dir: t.TempDir()}
	bin := filepath.Join(c.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	c.l2s = filepath.Join(bin, "l2s")
	c.run(t, "go", "build", "-C", "../..", "-o", c.l2s, "./cmd/l2s")
	r := rand.New(rand.NewPCG(1, 1))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	w, b, h := draw(labels*dim), draw(labels), draw(n*dim)
	for _, err := range []error{
		gguftest.WriteSafetensors(filepath.Join(c.dir, "lm.safetensors"),
			gguftest.Array{Name: "decoder.weight", Data: w, Shape: []int{labels, dim}},
			gguftest.Array{Name: "decoder.bias", Data: b, Shape: []int{labels}}),
		tensorfile.WriteNPY(filepath.Join(c.dir, "W.npy"), w, labels, dim),
		tensorfile.WriteNPY(filepath.Join(c.dir, "b.npy"), b, labels),
		tensorfile.WriteNPY(filepath.Join(c.dir, "H.npy"), h, n, dim),
		tensorfile.WriteNPY(filepath.Join(c.dir, "train.npy"), h, n, dim),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// run runs a program and returns its output.
func (c *corpus) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func (c *corpus) path(name string) string { return filepath.Join(c.dir, name) }

// check compares labels with the labels of one run without shards.
func (c *corpus) check(t *testing.T, path string) {
	t.Helper()
	c.run(t, c.l2s, "labels", "--weights", c.path("W.npy"), "--bias", c.path("b.npy"), "--contexts", c.path("H.npy"), "--out", c.path("whole.labels"))
	merged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(c.path("whole.labels"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(merged, whole) {
		t.Error("the labels of the parts differ from the labels of one run")
	}
}
