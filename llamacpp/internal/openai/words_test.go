package openai

import "testing"

func TestWordsWithoutAPlace(t *testing.T) {
	for _, c := range []struct {
		parallel, waiting int
		want              string
	}{
		{4, 32, "all 4 places are taken and 32 requests wait already: try again later"},
		{2, 1, "all 2 places are taken and 1 request waits already: try again later"},
		{1, 2, "the only place is taken and 2 requests wait already: try again later"},
		{3, 0, "all 3 places are taken: try again later"},
	} {
		if found := (&Server{o: Options{Parallel: c.parallel, Waiting: c.waiting}}).full(); found != c.want {
			t.Errorf("found %q, expected %q", found, c.want)
		}
	}
}
