package openai_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
)

var load = flag.Duration("load", 3*time.Second, "how long clients ask in TestLoad")

// Clients that ask for all kinds of answers, with some that go away in the middle and some that ask
// wrongly: each answer is right, all places are free at the end, and neither memory nor goroutines
// grow.
func TestLoad(t *testing.T) {
	s := serve(t, 256, func(o *openai.Options) { o.Parallel, o.Waiting = 3, 1 })
	var mu sync.Mutex
	counts := map[string]int{}
	note := func(what string) {
		mu.Lock()
		counts[what]++
		mu.Unlock()
	}
	lacking := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc([]string{"200", "400", "stream", "gone"}, func(what string) bool { return counts[what] == 0 })
	}
	half := func(seed uint64) {
		var wg sync.WaitGroup
		until := time.Now().Add(*load / 2)
		for i := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for time.Now().Before(until) || lacking() { // however slow this machine is
					ctx, leave := context.WithCancel(context.Background())
					path, body, want := "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"ignore_eos":true,"temperature":%v,"logprobs":%d`, prompt[:1+random.IntN(len(prompt)-1)], 1+random.IntN(20), random.IntN(2), random.IntN(3)), 200
					what := random.IntN(6)
					switch what {
					case 0:
						body += "}"
					case 1, 2:
						body += `,"stream":true}`
					case 3:
						body += `,"temperature":"x"}`
						want = 400
					case 4:
						path, body = "/v1/score", `{"prompt":"The first","answers":[" of these"," names"]}`
					case 5:
						path, body = "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":9,"ignore_eos":true,"frequency_penalty":1}`
					}
					r, _ := http.NewRequestWithContext(ctx, "POST", s.url+path, strings.NewReader(body))
					answer, err := http.DefaultClient.Do(r)
					if err != nil {
						t.Errorf("%s: %v", body, err)
						leave()
						return
					}
					switch {
					case answer.StatusCode == 503:
						note("503")
					case answer.StatusCode != want:
						t.Errorf("%s: found the status %d, expected %d", body, answer.StatusCode, want)
					case what == 2: // which goes away
						bufio.NewReader(answer.Body).ReadString('\n')
						leave()
						note("gone")
					case what == 1:
						text, err := io.ReadAll(answer.Body)
						if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || strings.Contains(string(text), `"error"`) {
							t.Errorf("%s: found the end %q, %v", body, text[max(0, len(text)-200):], err)
						}
						note("stream")
					default:
						var x map[string]any
						if err := json.NewDecoder(answer.Body).Decode(&x); err != nil {
							t.Errorf("%s: %v", body, err)
						}
						note(fmt.Sprint(want))
					}
					answer.Body.Close()
					leave()
				}
			})
		}
		wg.Wait()
		s.waits(t, "the end of a load", idle)
	}
	used := func() uint64 {
		http.DefaultClient.CloseIdleConnections()
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	half(1)
	before, routines := used(), runtime.NumGoroutine()
	half(2)
	after, left := used(), runtime.NumGoroutine()
	grown := func() bool { return after > before+before/4+4<<20 || left > routines+10 }
	for end := time.Now().Add(time.Minute); grown() && time.Now().Before(end); { // connections end some time after their clients
		time.Sleep(10 * time.Millisecond)
		after, left = used(), runtime.NumGoroutine()
	}
	t.Logf("%v; memory %d and %d KiB", counts, before>>10, after>>10)
	if grown() {
		t.Errorf("found %d KiB and %d goroutines after half of the load, %d and %d after all", before>>10, routines, after>>10, left)
	}
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2}`)
}
