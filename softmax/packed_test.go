package softmax_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

func TestPackRefuses(t *testing.T) {
	l := newLayer(t, make([]float32, 12), nil, 3)
	for _, c := range []struct {
		name   string
		ids    []uint32
		starts []int
		want   string
	}{
		{"an id that is no label", []uint32{1, 4}, []int{0, 2}, "ids[1]: found label 4, expected one below the 4 labels"},
		{"no starts", nil, nil, "starts: found [], expected 0 to the 0 ids"},
		{"ids before the first list", []uint32{1, 2}, []int{1, 2}, "starts: found [1 2], expected 0 to the 2 ids"},
		{"ids behind the last list", []uint32{1, 2}, []int{0, 1}, "starts: found [0 1], expected 0 to the 2 ids"},
		{"lists that go back", []uint32{1, 2}, []int{0, 2, 1, 2}, "starts[2]: found 1 after 2, expected at least that"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := l.Pack(c.ids, c.starts)
			if err == nil || !errors.Is(err, softmax.ErrRequest) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found error %v, expected %q", err, c.want)
			}
		})
	}
}

func TestAPackedListIsOfItsLayerAlone(t *testing.T) {
	w := []float32{1, 2, 3, 4, 5, 6}
	packed, err := newLayer(t, w, nil, 2).Pack([]uint32{0, 2}, []int{0, 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = softmax.NewSearcher(newLayer(t, w, nil, 2)).Search(make([]softmax.Prediction, 1), []float32{1, 1}, softmax.Request{K: 1, Among: packed.List(0)})
	if want := "packed for another layer"; err == nil || !errors.Is(err, softmax.ErrRequest) || !strings.Contains(err.Error(), want) {
		t.Errorf("found error %v, expected %q", err, want)
	}
}

func TestALayerWithoutCodesPacksNothing(t *testing.T) {
	l := newLayer(t, []float32{0x1p50, 1, 2, 3}, nil, 2)
	if packed, err := l.Pack([]uint32{1}, []int{0, 1}); packed != nil || err != nil {
		t.Errorf("found %v, %v, expected none", packed, err)
	}
}

func TestPackedBytesArePanels(t *testing.T) {
	for _, dim := range []int{1, 48, 64, 200} {
		l := newLayer(t, make([]float32, 3*dim), nil, dim)
		for _, c := range []struct {
			starts []int
			panels int
		}{{nil, 0}, {[]int{0}, 0}, {[]int{0, 1}, 1}, {[]int{0, 16, 16, 33}, 3}} {
			if got, want := l.PackedBytes(c.starts), int64(c.panels*kernels.Int8PanelBytes(dim)); got != want {
				t.Errorf("dimension %d, lists %v: found %d bytes, expected %d", dim, c.starts, got, want)
			}
		}
	}
}
