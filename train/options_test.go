package train

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/train/internal/learn"
)

// fill gives every option a value that is not the zero one, except options that are not in a
// record.
func fill(v reflect.Value, draw func(n int) int) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch name := v.Type().Field(i).Name; {
		case name == "Labels" || name == "Validation" || name == "Checkpoint" || name == "Threads" || name == "AnyPrecision" || name == "Progress":
		case f.Kind() == reflect.Struct:
			fill(f, draw)
		case name == "Estimator":
			f.SetString(learn.Expected)
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

// A record leaves out the options that do not change the result, and the values that the layer and
// the contexts determine.
func TestOptionsAsJSON(t *testing.T) {
	o := Options{Always: []uint32{}, Labels: []uint32{1}, Validation: []float32{1}, Checkpoint: "c", Threads: 25, Progress: func(Progress) {}}
	got, err := json.Marshal(o)
	want := `{"clusters":0,"iterations":0,"k":0,"budget":0,"geometry":0,"held_out":0,"kmeans_iterations":0,"learning":{` +
		`"lambda":0,"estimator":"","gamma":0,"multiplier":0,"epoch_fraction":0,"batch_size":0,"rate":0,"confidence":0},"seed":0}`
	if err != nil || string(got) != want {
		t.Errorf("found %s, %v, want %s", got, err, want)
	}
	for _, bad := range []string{`7`, `{"clusters":"many"}`, `{"learning":{"estimator":7}}`, `{"always":[-1]}`} {
		var o Options
		if err := json.Unmarshal([]byte(bad), &o); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
