package calibrate

import (
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/train"
)

// Contexts are refused if more than half of them were trained on beyond doubt: an estimate from
// few of them leaves room.
func TestOverlapThatIsRefused(t *testing.T) {
	for _, c := range []struct {
		o    train.Overlap
		want string // none for no error
	}{
		{train.Overlap{}, ""},
		{train.Overlap{Share: 0.5, Compared: 1000, Exact: true}, ""},
		{train.Overlap{Share: 0.51, Compared: 100, Exact: true}, "found 51% of them among the contexts"},
		{train.Overlap{Share: 1, Compared: 3, Exact: true}, "found the contexts that the screen was trained on"},
		{train.Overlap{Share: 1, Compared: 3}, ""},
		{train.Overlap{Share: 1, Compared: 5}, ""},
		{train.Overlap{Share: 1, Compared: 6}, "found about 100% of them among the contexts"},
		{train.Overlap{Share: 0.6, Compared: 100}, ""},
		{train.Overlap{Share: 0.6, Compared: 200}, "found about 60% of them"},
	} {
		err := checkOverlap(c.o)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: found the error %v, expected %q", c.o, err, c.want)
		}
	}
}
