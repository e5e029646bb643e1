package points

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func example() *File {
	return &File{
		Schema: Schema, Sweep: Quick, Complete: true, Level: "avx2", K: 5, Rounds: 3,
		Layer: Layer{Name: "a layer", Labels: 100, Dim: 8},
		Points: []Point{
			{Method: Dense, Timing: Timing{100, 99, 101, 1, 1, 1}, P1: 1, P5: 1},
			{Method: "L2S", Build: "r=100", Query: "B=50", Timing: Timing{10, 9, 11, 10, 9, 11}, P1: .99, P5: .98, Clusters: 100, Budget: 50},
			{Method: "L2S", Table: KMeans, Timing: Timing{10, 9, 11, 10, 9, 11}, P1: .99, P5: .98},
		},
	}
}

func TestAFileReadsBackAsItWasSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "points.json")
	want := example()
	if err := want.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPointsAreFoundByTheirTable(t *testing.T) {
	f := example()
	if got, want := f.Methods(Curves), []string{Dense, "L2S"}; !reflect.DeepEqual(got, want) {
		t.Errorf("methods of the curves: %v, want %v", got, want)
	}
	if got := f.Of(KMeans); len(got) != 1 || got[0].Table != KMeans {
		t.Errorf("points of the k-means table: %+v", got)
	}
	if got := f.Of(Clusters); len(got) != 0 {
		t.Errorf("points of the cluster table: %+v", got)
	}
}

func TestWrongFilesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ change, want string }{
		"schema":        {`"schema": 2>"schema": 1`, "schema: found 1, expected 2"},
		"field":         {`"sweep">"swept"`, `unknown field "swept"`},
		"table":         {`"kmeans">"other"`, `points[2]: table: found "other"`},
		"name":          {`"Dense float32">""`, "points[0]: method"},
		"time":          {`"us": 100>"us": 0`, "points[0]: us: found 0"},
		"precision":     {`"p1": 0.99>"p1": 1.5`, "points[1]: p1: found 1.5"},
		"more after it": {"\n}\n>\n}\n{}", "expected the end"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := example().Write(&b); err != nil {
				t.Fatal(err)
			}
			from, to, _ := strings.Cut(c.change, ">")
			data := strings.Replace(b.String(), from, to, 1)
			if data == b.String() {
				t.Fatalf("%q is not in the file", from)
			}
			if _, err := Read([]byte(data)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}
