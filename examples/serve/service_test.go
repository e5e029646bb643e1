package main

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/preview"
)

const labels, dim, clusters = 200, 12, 5

var (
	loadRequests = flag.Int("load-requests", 100, "requests of each client in the test of a load")
	testLimits   = limits{body: 1 << 16, memory: 64 << 20, contexts: 10, k: 150}
)

// files are a layer and a screen without a tail, and the folder that holds them.
type files struct {
	dir     string
	w, b, v []float32
	lists   []screening.List
}

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

func draw(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// newFiles writes W.npy, b.npy, vocab.txt, and the screens a.l2s and b.l2s, which differ; a.l2s is
// m.l2s too.
func newFiles(t *testing.T) (*files, *files) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	f := &files{dir: t.TempDir(), w: draw(r, labels*dim), b: draw(r, labels)}
	layer, err := l2s.New(l2s.Float32(f.w, dim), f.b)
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	for id := range labels {
		fmt.Fprintf(&words, "word %d\n", id)
	}
	second := *f
	for name, f := range map[string]*files{"a.l2s": f, "b.l2s": &second} {
		f.v, f.lists = draw(r, clusters*dim), make([]screening.List, clusters)
		for i := range f.lists {
			for id := range uint32(labels) {
				if r.IntN(4) == 0 {
					f.lists[i].IDs = append(f.lists[i].IDs, id)
				}
			}
		}
		m, err := synthetic.Screen(screening.Config{Dim: dim, Labels: labels, Clusters: f.v, Lists: f.lists, Fingerprint: layer.Fingerprint()})
		if err == nil {
			err = m.Save(f.path(name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		tensorfile.WriteNPY(f.path("W.npy"), f.w, labels, dim), tensorfile.WriteNPY(f.path("b.npy"), f.b, labels),
		os.WriteFile(f.path("vocab.txt"), []byte(words.String()), 0o644), f.put("a.l2s"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return f, &second
}

// put replaces m.l2s by another file, atomically.
func (f *files) put(name string) error {
	content, err := os.ReadFile(f.path(name))
	if err == nil {
		err = os.WriteFile(f.path("new"), content, 0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(f.path("new"), f.path("m.l2s"))
}

// best is the answer by a plain loop: the k best labels among the candidates of a context, or all.
func (f *files) best(h []float32, k int, exact bool, permits func(uint32) bool) (ids []uint32, logits []float64, logSum float64) {
	product := func(row []float32) (x float64) {
		for j := range h {
			x += float64(row[j]) * float64(h[j])
		}
		return x
	}
	cluster := 0
	for c := range clusters {
		if product(f.v[c*dim:][:dim]) > product(f.v[cluster*dim:][:dim]) {
			cluster = c
		}
	}
	all := make([]float64, labels)
	for id := range uint32(labels) {
		all[id] = product(f.w[int(id)*dim:][:dim]) + float64(f.b[id])
		if !permits(id) {
			continue
		}
		logSum += math.Exp(all[id])
		if exact || slices.Contains(f.lists[cluster].IDs, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) < k && !exact {
		return f.best(h, k, true, permits)
	}
	slices.SortFunc(ids, func(a, b uint32) int {
		if all[a] > all[b] {
			return -1
		}
		return 1
	})
	ids = ids[:min(k, len(ids))]
	for _, id := range ids {
		logits = append(logits, all[id])
	}
	return ids, logits, math.Log(logSum)
}

func (f *files) serve(t *testing.T, l limits) (*service, string) {
	t.Helper()
	v, err := newService(f.path("W.npy"), f.path("b.npy"), f.path("m.l2s"), f.path("vocab.txt"), l)
	if err != nil {
		t.Fatal(err)
	}
	audit, err := v.pool.Audit(l2s.AuditOptions{Share: 1e-12}) // one sample at most, since any query may be the first one
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(v.routes(audit))
	t.Cleanup(server.Close)
	return v, server.URL
}

func post(t *testing.T, url string, body any) (status int, r reply, text string) {
	t.Helper()
	content, isText := body.(string)
	if !isText {
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		content = string(encoded)
	}
	answer, err := http.Post(url, "application/json", strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode == http.StatusOK {
		if err := json.Unmarshal(got, &r); err != nil {
			t.Fatal(err)
		}
	}
	return answer.StatusCode, r, string(got)
}

func TestAnswersAreThoseOfAPlainLoop(t *testing.T) {
	f, _ := newFiles(t)
	_, url := f.serve(t, testLimits)
	contexts := [][]float32{}
	texts := []string{}
	for i := range uint64(7) {
		h := draw(rand.New(rand.NewPCG(i, 2)), dim)
		raw, _ := binary.Append(nil, binary.LittleEndian, h)
		contexts, texts = append(contexts, h), append(texts, base64.StdEncoding.EncodeToString(raw))
	}
	type object = map[string]any
	all := func(uint32) bool { return true }
	for _, c := range []struct {
		name, path string
		request    object
		k          int
		exact      bool
		permits    func(uint32) bool
	}{
		{"numbers", "/topk", object{"contexts": contexts}, 5, false, all},
		{"base64", "/topk", object{"contexts": texts, "k": 3}, 3, false, all},
		{"more than the candidates", "/topk", object{"contexts": contexts, "k": 150}, 150, true, all},
		{"exact", "/topk", object{"contexts": contexts, "k": 3, "exact": true}, 3, true, all},
		{"banned", "/topk", object{"contexts": contexts, "k": 3, "ban": []int{0, 1, 2, 100, 199}}, 3, false, func(id uint32) bool { return id > 2 && id != 100 && id != 199 }},
		{"allowed", "/topk", object{"contexts": contexts, "k": 2, "exact": true, "allow": []int{7, 8, 9}}, 2, true, func(id uint32) bool { return id >= 7 && id <= 9 }},
		{"log-probabilities", "/logprobs", object{"contexts": texts, "k": 2}, 2, true, all},
		{"log-probabilities without the banned", "/logprobs", object{"contexts": texts, "k": 2, "ban": []int{0, 1, 2, 100, 199}}, 2, true, func(id uint32) bool { return id > 2 && id != 100 && id != 199 }},
		{"log-probabilities of the allowed", "/logprobs", object{"contexts": texts, "k": 2, "allow": []int{7, 8, 9}}, 2, true, func(id uint32) bool { return id >= 7 && id <= 9 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, r, text := post(t, url+c.path, c.request)
			if status != http.StatusOK || len(r.Answers) != len(contexts) {
				t.Fatalf("found status %d and %d answers, expected 200 and %d: %s", status, len(r.Answers), len(contexts), text)
			}
			for i, h := range contexts {
				ids, logits, logSum := f.best(h, c.k, c.exact, c.permits)
				if len(r.Answers[i].Labels) != len(ids) {
					t.Fatalf("context %d: found %d labels, expected %d", i, len(r.Answers[i].Labels), len(ids))
				}
				for j, l := range r.Answers[i].Labels {
					if l.ID != ids[j] || math.Abs(l.Logit-logits[j]) > 1e-9 || *l.Text != fmt.Sprintf("word %d", ids[j]) {
						t.Errorf("context %d: found label %d (%s) with logit %v, expected %d with %v", i, l.ID, *l.Text, l.Logit, ids[j], logits[j])
					}
					if c.path == "/logprobs" && math.Abs(*l.LogProb-(logits[j]-logSum)) > 1e-9 {
						t.Errorf("context %d: found log-probability %v, expected %v", i, *l.LogProb, logits[j]-logSum)
					}
				}
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	f, _ := newFiles(t)
	v, url := f.serve(t, testLimits)
	h := "[" + strings.TrimSuffix(strings.Repeat("1,", dim), ",") + "]"
	for _, c := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"no object", `[]`, 400, "body: "},
		{"no end", `{"contexts": [` + h, 400, "body: "},
		{"more", `{"contexts": [` + h + `]} {}`, 400, "more after the object"},
		{"no contexts", `{}`, 400, "contexts: found 0, expected 1 to 10"},
		{"too many contexts", `{"contexts": [` + strings.Repeat(h+",", 10) + h + `]}`, 400, "contexts: found 11, expected 1 to 10"},
		{"no body", ``, 400, "body: "},
		{"no more than null", `null`, 400, "body: found "},
		{"a wrong end", `{"contexts": [` + h + `]]`, 400, "body: "},
		{"a wrong end after the object", `{"contexts": [` + h + `]} ]`, 400, "body: "},
		{"an unknown field", `{"context": [` + h + `]}`, 400, `"context": found an unknown field`},
		{"a field in another case", `{"contexts": [` + h + `], "K": 1}`, 400, `"K": found an unknown field`},
		{"contexts twice", `{"contexts": [` + h + `], "contexts": [` + h + `]}`, 400, "contexts: found the field twice"},
		{"a context in two halves", `{"contexts": [[` + strings.Repeat("1,", dim/2-1) + `1]], "contexts": [[` + strings.Repeat("1,", dim/2-1) + `1]]}`, 400, "contexts: found the field twice"},
		{"k twice", `{"contexts": [` + h + `], "k": 1, "k": 3}`, 400, "k: found the field twice"},
		{"k twice, once with an escape", `{"contexts": [` + h + `], "k": 1, "\u006b": 3}`, 400, "k: found the field twice"},
		{"k twice, once null", `{"k": null, "contexts": [` + h + `], "k": 3}`, 400, "k: found the field twice"},
		{"a ban taken back", `{"contexts": [` + h + `], "ban": [1], "ban": []}`, 400, "ban: found the field twice"},
		{"allow twice", `{"contexts": [` + h + `], "allow": [1], "allow": [2]}`, 400, "allow: found the field twice"},
		{"budget twice", `{"contexts": [` + h + `], "budget": 5, "budget": 5}`, 400, "budget: found the field twice"},
		{"exact twice", `{"contexts": [` + h + `], "exact": true, "exact": false}`, 400, "exact: found the field twice"},
		{"no allowed label", `{"contexts": [` + h + `], "allow": []}`, 400, "allow, ban: found no label"},
		{"the allowed label banned", `{"contexts": [` + h + `], "exact": true, "allow": [1], "ban": [1]}`, 400, "allow, ban: found no label"},
		{"null for a context", `{"contexts": [null]}`, 400, "found null"},
		{"null for a number", `{"contexts": [[1, null]]}`, 400, "null"},
		{"too few numbers", `{"contexts": [` + h + `, [1, 2]]}`, 400, "contexts[1]: found 2 numbers, expected 12"},
		{"a number beyond float32", `{"contexts": [[1e39]]}`, 400, "1e39"},
		{"a word for a context", `{"contexts": ["x"]}`, 400, "base64"},
		{"base64 of NaN", `{"contexts": ["` + strings.Repeat("AADAfwAAwH8AAMB/", dim/3) + `"]}`, 400, "NaN"},
		{"k of 0", `{"contexts": [` + h + `], "k": 0}`, 400, "k: found 0, expected 1 to 150"},
		{"k of 151", `{"contexts": [` + h + `], "k": 151}`, 400, "k: found 151, expected 1 to 150"},
		{"half a label", `{"contexts": [` + h + `], "k": 1.5}`, 400, "body: k: "},
		{"a negative budget", `{"contexts": [` + h + `], "budget": -1}`, 400, "-1"},
		{"a banned label beyond the layer", `{"contexts": [` + h + `], "ban": [200]}`, 400, `ban[0]: found "200"`},
		{"null for an allowed label", `{"contexts": [` + h + `], "allow": [1, null]}`, 400, "allow[1]"},
		{"a large body", `{"contexts": [` + strings.Repeat(" ", 1<<16) + h + `]}`, 413, "65536"},
	} {
		if status, _, text := post(t, url+"/topk", c.body); status != c.status || !strings.Contains(text, `{"error":`) || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), c.want) {
			t.Errorf("%s: found status %d and %s, expected %d and %s", c.name, status, text, c.status, c.want)
		}
	}
	if r, err := http.Get(url + "/topk"); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: found %v, %v, expected 405", r.StatusCode, err)
	}
	if n := v.memory.Load(); n != 0 {
		t.Errorf("found %d bytes under way after all requests, expected 0", n)
	}
}

func TestReload(t *testing.T) {
	f, second := newFiles(t)
	v, url := f.serve(t, testLimits)
	h := draw(rand.New(rand.NewPCG(9, 9)), dim)
	all := func(uint32) bool { return true }
	check := func(when string, f *files) {
		t.Helper()
		_, r, _ := post(t, url+"/topk", map[string]any{"contexts": [][]float32{h}, "k": 4})
		ids, _, _ := f.best(h, 4, false, all)
		for j, l := range r.Answers[0].Labels {
			if l.ID != ids[j] {
				t.Errorf("%s: found %v at %d, expected %d", when, l.ID, j, ids[j])
			}
		}
	}
	check("at first", f)
	if err := f.put("b.l2s"); err != nil || v.reload() != nil {
		t.Fatal(err)
	}
	check("after a reload", second)
	content, err := os.ReadFile(f.path("a.l2s"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		make func() error
	}{
		{"a torn file", func() error { return os.WriteFile(f.path("m.l2s"), content[:len(content)/2], 0o644) }},
		{"no file", func() error { return os.Remove(f.path("m.l2s")) }},
		{"a folder", func() error { return os.Mkdir(f.path("m.l2s"), 0o755) }},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		if err := v.reload(); err == nil {
			t.Errorf("%s: found no error, expected one", c.name)
		}
		check("after "+c.name, second)
	}
}

// A preview, and a layer without an index, are served like a screen: with their precision in words,
// swapped, and audited.
func TestAnyIndexIsServed(t *testing.T) {
	const many, d, n = 3000, 32, 2600
	r := rand.New(rand.NewPCG(3, 4))
	f := &files{dir: t.TempDir(), w: draw(r, many*d)}
	states := draw(r, n*d)
	for i := range states { // near the row of a label
		states[i] += 2 * f.w[i/d*d+i%d]
	}
	if err := tensorfile.WriteNPY(f.path("W.npy"), f.w, many, d); err != nil {
		t.Fatal(err)
	}
	layer, err := l2s.New(l2s.Float32(f.w, d), nil)
	if err != nil {
		t.Fatal(err)
	}
	index, err := preview.Make(t.Context(), layer, l2s.Float32(states[:2000*d], layer.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.Save(f.path("m.l2p")); err != nil {
		t.Fatal(err)
	}
	exactly, err := newService(f.path("W.npy"), "", "", "", testLimits)
	if err != nil {
		t.Fatal(err)
	}
	v, err := newService(f.path("W.npy"), "", f.path("m.l2p"), "", testLimits)
	if err != nil {
		t.Fatal(err)
	}
	if text := exactly.precision(); text != "exact answers, which miss no label" {
		t.Errorf("found %q", text)
	}
	if text := v.precision(); !strings.HasPrefix(text, "a preview with P@1 0.99") && !strings.HasPrefix(text, "a preview with P@1 1.0000") {
		t.Errorf("found %q, expected a precise preview", text)
	}
	audit, err := v.pool.Audit(l2s.AuditOptions{Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer audit.Stop()
	server, whole := httptest.NewServer(v.routes(audit)), httptest.NewServer(exactly.routes(audit))
	defer server.Close()
	defer whole.Close()
	same, asked := 0, 0
	for end := time.Now().Add(5 * time.Minute); asked < 300 || audit.Report().Window == 0; asked++ {
		if time.Now().After(end) {
			t.Fatal("found no sample of the audit")
		}
		at := 2000 + asked%600
		request := map[string]any{"contexts": [][]float32{states[at*d:][:d]}, "k": 3}
		_, got, _ := post(t, server.URL+"/topk", request)
		_, want, _ := post(t, whole.URL+"/topk", request)
		if want.Answers[0].Source != "layer" {
			t.Fatal("without an index: found an answer that is not exact")
		}
		if got.Answers[0].Labels[0].ID == want.Answers[0].Labels[0].ID {
			same++
		}
		if asked == 100 {
			if err := v.reload(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if same < asked*9/10 {
		t.Errorf("found %d of %d best labels, expected nearly all", same, asked)
	}
	for path, want := range map[string]string{"/audit": "P@1 ", "/metrics": "l2s_precision_at_1 "} {
		r, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		if r.Body.Close(); !strings.Contains(string(text), want) {
			t.Errorf("%s: found %s, expected the precision", path, text)
		}
	}
	_, a, _ := post(t, server.URL+"/logprobs", map[string]any{"contexts": [][]float32{states[2000*d:][:d]}, "k": 1})
	_, b, _ := post(t, whole.URL+"/logprobs", map[string]any{"contexts": [][]float32{states[2000*d:][:d]}, "k": 1})
	if x, y := *a.Answers[0].Labels[0].LogProb, *b.Answers[0].Labels[0].LogProb; math.Abs(x-y) > 0.2 {
		t.Errorf("found the log-probability %v by the preview, expected about %v", x, y)
	}
}

// A precision that is low, or not known, is told.
func TestPrecisionInWords(t *testing.T) {
	f, _ := newFiles(t)
	v, _ := f.serve(t, testLimits)
	if text := v.precision(); text != "a screen of unknown precision: nothing was held out when it was made" {
		t.Errorf("found %q", text)
	}
	poor := screening.Config{Dim: dim, Labels: labels, Clusters: f.v, Lists: f.lists, K: 5, HeldOut: 100,
		Ladder: []screening.Rung{{Budget: 5, Precision1: screening.Estimate{Value: 0.76, Low: 0.7, High: 0.8}, PrecisionK: screening.Estimate{Value: 0.7, Low: 0.6, High: 0.8}}}}
	x, err := synthetic.Screen(poor)
	if err != nil {
		t.Fatal(err)
	}
	if text := precisionOf(x); !strings.HasPrefix(text, "WARNING: a screen with P@1 0.7600 and P@5 0.7000 on 100 contexts") {
		t.Errorf("found %q, expected a warning", text)
	}
}

// Clients that send slowly, or do not read, hold no more than the limit; others get 503 meanwhile.
func TestMemoryOfSlowClientsHasALimit(t *testing.T) {
	f, _ := newFiles(t)
	l := testLimits
	l.memory = 1 << 20
	v, url := f.serve(t, l)
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /topk HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", l.body) // alone, it could exceed the limit
	for end := time.Now().Add(5 * time.Minute); v.memory.Load() == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	body := strings.Repeat(" ", 60_000) + `{"contexts": [[]]}`
	r, err := http.Post(url+"/topk", "", strings.NewReader(body))
	if err != nil || r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("with a slow client: found %v, %v, expected 503 with Retry-After", r, err)
	}
	if n := v.memory.Load(); n > l.memory {
		t.Errorf("found %d bytes under way, expected %d at most", n, l.memory)
	}
	c.Close()
	for end := time.Now().Add(5 * time.Minute); v.memory.Load() != 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if status, _, text := post(t, url+"/topk", body); status != http.StatusBadRequest {
		t.Errorf("after the slow client: found status %d, expected 400: %s", status, text)
	}
}

func TestMetricsAndAudit(t *testing.T) {
	f, _ := newFiles(t)
	_, url := f.serve(t, testLimits)
	get := func(path string) string {
		r, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%s: found %d, %v and %s, expected 200", path, r.StatusCode, err, text)
		}
		return string(text)
	}
	if text := get("/audit"); !strings.HasPrefix(text, "no samples yet: ") {
		t.Errorf("/audit: found %q before any query, expected no samples", text)
	}
	if text := get("/metrics"); strings.Contains(text, "precision_at_1") {
		t.Errorf("/metrics: found a precision without samples:\n%s", text)
	}
	get("/readyz")
	post(t, url+"/topk", map[string]any{"contexts": [][]float32{make([]float32, dim), make([]float32, dim)}})
	text := get("/metrics")
	for _, want := range []string{"l2s_contexts_total 2\n", "l2s_alarms 0\n", "l2s_memory_bytes 0\n", `l2s_request_seconds_count{code="200",handler="/topk"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics: found %s, expected %s", text, want)
		}
	}
}

// The test binary is the program if the variable is set.
func TestMain(m *testing.M) {
	if os.Getenv("L2S_SERVE") != "" {
		main()
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// A wrong call ends with a line that names the flag, and an example.
func TestWrongUse(t *testing.T) {
	const example = "as in: serve -head W.npy -bias b.npy -index m.l2p -vocab words.txt; -h explains the flags\n"
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "-head: found none, which is required, " + example},
		{"-index m.l2p", "-head: found none, which is required, " + example},
		{"-head W.npy -index m.l2p words.txt", `found the argument "words.txt", expected flags alone, ` + example},
		{"-head W.npy -index m.l2p -max-body 0", "-max-body: found 0, expected a limit above 0; -h explains the flags\n"},
		{"-head W.npy -index m.l2p -max-memory -1", "-max-memory: found -1, expected a limit above 0; -h explains the flags\n"},
		{"-head W.npy -index m.l2p -max-contexts 0", "-max-contexts: found 0, expected a limit above 0; -h explains the flags\n"},
		{"-head W.npy -index m.l2p -max-k 0", "-max-k: found 0, expected a limit above 0; -h explains the flags\n"},
		{"-head W.npy -index m.l2p -timeout 0s", "-timeout: found 0s, expected a limit above 0; -h explains the flags\n"},
	} {
		cmd := exec.Command(os.Args[0], strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "L2S_SERVE=1")
		output, err := cmd.CombinedOutput()
		if err == nil || !strings.HasSuffix(string(output), " "+c.want) || strings.Count(string(output), "\n") != 1 {
			t.Errorf("serve %s: found the error %v and %q, expected one line with %q", c.args, err, output, c.want)
		}
	}
	cmd := exec.Command(os.Args[0], "-h")
	cmd.Env = append(os.Environ(), "L2S_SERVE=1")
	if output, _ := cmd.CombinedOutput(); strings.Count(string(output), "required") != 1 {
		t.Errorf("serve -h: found\n%s\nexpected one flag that is required", output)
	}
}

// Clients ask the program while its screen is swapped: each answer is of one screen or the other,
// and SIGTERM ends it when all have been answered.
func TestTheProgramUnderLoad(t *testing.T) {
	f, second := newFiles(t)
	cmd := exec.Command(os.Args[0], "-head", f.path("W.npy"), "-bias", f.path("b.npy"), "-index", f.path("m.l2s"), "-vocab", f.path("vocab.txt"),
		"-addr", "127.0.0.1:0", "-timeout", "10m", "-grace", "10m") // for a slow machine
	cmd.Env = append(os.Environ(), "L2S_SERVE=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	output := bufio.NewReader(stderr)
	line, err := output.ReadString('\n')
	_, address, found := strings.Cut(strings.TrimSpace(line), "; http://")
	if !found {
		rest, _ := io.ReadAll(output)
		t.Fatalf("found no service, %v: %s%s", err, line, rest)
	}
	said := make(chan string, 1)
	go func() { rest, _ := io.ReadAll(output); said <- string(rest) }()
	if r, err := http.Get("http://" + address + "/readyz"); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("found no service: %v, %v", r, err)
	}
	var wait sync.WaitGroup
	all := func(uint32) bool { return true }
	for client := range uint64(4) {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(client, 3))
			for range *loadRequests {
				h := draw(r, dim)
				status, got, text := post(t, "http://"+address+"/topk", map[string]any{"contexts": [][]float32{h}, "k": 3})
				if status != http.StatusOK {
					t.Errorf("found status %d, expected 200: %s", status, text)
					return
				}
				var ids []uint32
				for _, l := range got.Answers[0].Labels {
					ids = append(ids, l.ID)
				}
				a, _, _ := f.best(h, 3, false, all)
				b, _, _ := second.best(h, 3, false, all)
				if !slices.Equal(ids, a) && !slices.Equal(ids, b) {
					t.Errorf("found the labels %v, expected %v or %v", ids, a, b)
				}
			}
		})
	}
	for i := range 10 {
		if err := f.put([]string{"b.l2s", "a.l2s"}[i%2]); err != nil {
			t.Error(err)
		}
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	wait.Wait()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	rest := <-said // before Wait, which closes the pipe
	if err := cmd.Wait(); err != nil {
		t.Errorf("found %v after SIGTERM, expected status 0: %s", err, rest)
	}
}
