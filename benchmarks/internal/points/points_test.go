package points

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
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
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := new(File)
	if err := json.Unmarshal(data, got); err != nil {
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
