package train

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// fill gives every option a value that is not the zero one, except those that
// do not go into a record.
func fill(v reflect.Value, draw func(n int) int) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch name := v.Type().Field(i).Name; {
		case name == "TailContexts" || name == "Labels" || name == "Checkpoint" || name == "Threads" || name == "Progress":
		case f.Kind() == reflect.Struct:
			fill(f, draw)
		case name == "Estimator" || name == "Optimizer":
			f.SetUint(1)
		case f.CanInt():
			f.SetInt(int64(1 + draw(1000)))
		case f.CanUint():
			f.SetUint(uint64(1 + draw(1000)))
		case f.CanFloat():
			f.SetFloat(float64(1+draw(1000)) / 7)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
			fill(f.Elem(), draw)
		case f.Type() == reflect.TypeFor[[]float64]():
			f.Set(reflect.ValueOf([]float64{float64(1+draw(10)) / 7}))
		case f.Kind() == reflect.Slice:
			f.Set(reflect.ValueOf([]uint32{uint32(draw(10)), uint32(10 + draw(10))}))
		default:
			panic("an option of a kind that the test does not know: " + name)
		}
	}
}

// Every option that a run depends on is in its record, and comes back.
func TestOptionsOfARecordComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o, back Options
		fill(reflect.ValueOf(&o).Elem(), func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "x") })
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(o, back) {
			t.Fatalf("found %+v, want %+v; by way of %s", back, o, text)
		}
	})
}

// The bytes follow the format: the order of the members, and which members are left
// out.
func TestOptionsAsJSON(t *testing.T) {
	all := Options{
		KMeansOptions:   KMeansOptions{1, 2, 3, 4, 5},
		LearningOptions: LearningOptions{5, true, Expected, 6, 7, 0.8, 9, 10, 11, 12, Momentum, 0.13, 0.14},
		SetOptions:      SetOptions{15, 16, 17, 0.18, 0.25, 0.19, 0.26, []float64{0.28, 0.27}, 29, []uint32{20, 21}},
		K:               22, Tail: &TailOptions{[]float64{0.5}, []float64{0.6}, 7, 0.8, 9}, Measure: true, Seed: 24,
		Labels: []uint32{1}, Checkpoint: "c", Threads: 25, Progress: func(Progress) {},
	}
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"all", all, `{"clusters":1,"groups":2,"overlap":3,"budget":15,"k":22,"lambda":16,"smoothing":17,"spread":0.18,"geometry":0.25,"probe_share":0.19,"pair_weight":0.26,"shells":[0.28,0.27],"largest":29,` +
			`"tail":{"temperatures":[0.5],"levels":[0.6],"per_cluster":7,"held_out":0.8,"directions":9},"measure":true,` +
			`"gamma":6,"multiplier":7,"iterations":5,"kmeans_only":true,"estimator":"expected","seed":24,"always":[20,21],` +
			`"kmeans_iterations":4,"kmeans_batch":5,"held_out":0.8,"patience":9,"epoch_fraction":10,"batch_size":11,` +
			`"learning_rate":12,"optimizer":"momentum","momentum":0.13,"confidence":0.14}`},
		{"none", Options{SetOptions: SetOptions{Always: []uint32{}}}, `{"clusters":0,"budget":0,"k":0,"lambda":0,"gamma":0,"multiplier":0,"iterations":0,"kmeans_only":false,` +
			`"estimator":"gumbel-st","seed":0,"kmeans_iterations":0,"held_out":0,"epoch_fraction":0,"batch_size":0,` +
			`"learning_rate":0,"optimizer":"adam","momentum":0,"confidence":0}`},
	} {
		got, err := json.Marshal(c.o)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: found %s, %v, want %s", c.name, got, err, c.want)
		}
	}
	for _, bad := range []string{`7`, `{"clusters":"many"}`, `{"estimator":"reinforce"}`, `{"always":[-1]}`} {
		var o Options
		if err := json.Unmarshal([]byte(bad), &o); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	if _, err := json.Marshal(Options{LearningOptions: LearningOptions{Estimator: 9}}); err == nil {
		t.Error("an unknown estimator: no error")
	}
}
