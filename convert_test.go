package l2s

import (
	"reflect"
	"testing"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Each field of a request reaches the searches, under its name and with its value, and the searches
// know no other field.
func TestTheSearchesSeeEveryFieldOfARequest(t *testing.T) {
	set := bitset.New(3)
	all := Request{
		Budget: 1, Within: 2, Temperature: 3, Exact: true, LogSum: true, ExactSum: true, Also: []uint32{5},
		Among: Only([]uint32{1}), Allowed: set, Banned: bitset.New(4), Biases: []Bias{{1, 2}, {3, 4}},
	}
	in := all.inside()
	from, to := reflect.ValueOf(all), reflect.ValueOf(in)
	if from.NumField() != to.NumField() {
		t.Errorf("found %d fields, expected %d", from.NumField(), to.NumField())
	}
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		if from.Field(i).IsZero() {
			t.Errorf("%s: found no value, expected one in this test", name)
		}
		got := to.FieldByName(name)
		if !got.IsValid() || got.IsZero() {
			t.Errorf("%s: found nothing in the request of the searches", name)
			continue
		}
		switch name {
		case "Also", "Among", "Biases":
		default:
			if got.Interface() != from.Field(i).Interface() {
				t.Errorf("%s: found %v, expected %v", name, got, from.Field(i))
			}
		}
	}
	if !exact.IsList(in.Among) || len(in.Also) != 1 || in.Also[0] != 5 || len(in.Biases) != 2 || in.Biases[1] != (exact.Bias{ID: 3, Add: 4}) {
		t.Errorf("found %+v, expected the list and the biases", in)
	}
	if &in.Biases[0].Add != &all.Biases[0].Add {
		t.Error("found a copy of the biases, expected their memory")
	}
	if none := (&Request{}).inside(); none.Biases != nil || exact.IsList(none.Among) {
		t.Errorf("found %+v, expected nothing", none)
	}
}

func TestPredictionsAreWrittenInPlace(t *testing.T) {
	dst := make([]Prediction, 2)
	in := inside(dst)
	in[1] = exact.Prediction{ID: 7, Logit: 8}
	if len(in) != 2 || dst[1] != (Prediction{ID: 7, Logit: 8}) {
		t.Errorf("found %v, expected the prediction in its place", dst)
	}
	if inside(nil) != nil || len(inside([]Prediction{})) != 0 {
		t.Error("found room for labels, expected none")
	}
}
