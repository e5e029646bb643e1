package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

const (
	testLabels, testDim, testClusters = 200, 12, 5
	testContexts                      = 7
)

// testFiles writes a layer, a screen and a vocabulary to a folder, all drawn by the
// seed.
func testFiles(t *testing.T, dir string, seed uint64, labels, dim int, change func(c *screen.Config)) sources {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	w, b := draw(labels*dim), draw(labels)
	layer, err := softmax.NewLayer(kernels.Float32Rows(w, dim), b)
	if err != nil {
		t.Fatal(err)
	}
	c := screen.Config{Dim: dim, Labels: labels, Clusters: draw(testClusters * dim), Lists: make([]screen.List, testClusters), Fingerprint: layer.Fingerprint()}
	for i := range c.Lists {
		for id := range labels {
			if r.IntN(4) == 0 {
				c.Lists[i].IDs = append(c.Lists[i].IDs, uint32(id))
			}
		}
	}
	if change != nil {
		change(&c)
	}
	m, err := screen.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	for id := range labels {
		fmt.Fprintf(&words, "word %d of %d\n", id, seed)
	}
	s := sources{head: filepath.Join(dir, "W.npy"), bias: filepath.Join(dir, "b.npy"), screen: filepath.Join(dir, "m.l2s"), vocab: filepath.Join(dir, "vocab.txt")}
	for _, err := range []error{
		tensorfile.WriteNPY(s.head, w, labels, dim), tensorfile.WriteNPY(s.bias, b, labels),
		m.Save(s.screen), os.WriteFile(s.vocab, []byte(words.String()), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func drawContexts(seed uint64, n, dim int) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 2))
	contexts := make([][]float32, n)
	for i := range contexts {
		for range dim {
			contexts[i] = append(contexts[i], float32(r.NormFloat64()))
		}
	}
	return contexts
}

// base64Of is the other form of contexts in a request.
func base64Of(t *testing.T, contexts [][]float32) (texts [][]byte) { // which JSON writes in base64
	for _, h := range contexts {
		raw, err := binary.Append(nil, binary.LittleEndian, h)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, raw)
	}
	return texts
}

var testLimits = limits{body: 1 << 16, contexts: 10, k: 150, memory: 64 << 20}

func serve(t *testing.T, s sources) (*service, *httptest.Server) {
	t.Helper()
	v, err := newService(s, testLimits)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(v.routes(newMetrics(v), false))
	t.Cleanup(server.Close)
	return v, server
}

func post(t *testing.T, url string, body any) (status int, r reply, text string) {
	t.Helper()
	b, isText := body.(string)
	if !isText {
		j, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		b = string(j)
	}
	answer, err := http.Post(url, "application/json", strings.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
	}
	return answer.StatusCode, r, string(data)
}

func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

// checkReply compares the answers with the library's answers to the same request, over
// the same files.
func checkReply(t *testing.T, got reply, s sources, q query, logProbs bool) {
	t.Helper()
	f, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.head.Close()
	var opts []screen.Option
	if f.model.Tail() != nil {
		opts = append(opts, screen.OverTail())
	}
	searcher, err := screen.NewSearcher(f.model, f.layer, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Answers) != len(q.Contexts) {
		t.Fatalf("found %d answers, expected %d", len(got.Answers), len(q.Contexts))
	}
	for i, h := range q.Contexts {
		best := make([]softmax.Prediction, q.K)
		req := softmax.Request{K: q.K, LogSum: logProbs}
		a, err := searcher.Search(best, h, req)
		if logProbs && f.model.Tail() == nil {
			req.ExactSum = true
			a, err = softmax.NewSearcher(f.layer).Search(best, h, req)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := answer{Source: a.Source.String()}
		for _, p := range best {
			l := label{ID: p.ID, Text: &f.vocab[p.ID], Logit: p.Logit}
			if logProbs {
				x := p.Logit - a.LogSum
				l.LogProb = &x
			}
			want.Labels = append(want.Labels, l)
		}
		g, _ := json.Marshal(got.Answers[i])
		w, _ := json.Marshal(want)
		if !bytes.Equal(g, w) {
			t.Fatalf("context %d: found %s, expected %s", i, g, w)
		}
	}
}

// Labels that are banned, or not allowed, are in no answer; the others come in the order of all,
// which a query of the exact layer for many gives.
func TestBannedAndAllowedLabels(t *testing.T) {
	s := testFiles(t, t.TempDir(), 3, testLabels, testDim, nil)
	_, server := serve(t, s)
	q := query{Contexts: drawContexts(3, 4, testDim), K: testLimits.k, Budget: 0}
	ask := func(fields string, k int) reply {
		t.Helper()
		contexts, err := json.Marshal(q.Contexts)
		if err != nil {
			t.Fatal(err)
		}
		status, r, text := post(t, server.URL+"/topk", fmt.Sprintf(`{"contexts":%s,"k":%d,"budget":"exact"%s}`, contexts, k, fields))
		if status != http.StatusOK {
			t.Fatalf("%s: found %d %s", fields, status, text)
		}
		return r
	}
	all := ask("", testLimits.k)
	first := all.Answers[0].Labels
	ban := []uint32{first[0].ID, first[2].ID}
	allow := []uint32{first[9].ID, first[4].ID, first[2].ID}
	for name, c := range map[string]struct {
		fields string
		k      int
		permit func(id uint32) bool
	}{
		"ban":   {fmt.Sprintf(`,"ban":[%d,%d,4000000000]`, ban[0], ban[1]), 20, func(id uint32) bool { return !slices.Contains(ban, id) }},
		"allow": {fmt.Sprintf(`,"allow":[%d,%d,%d]`, allow[0], allow[1], allow[2]), 3, func(id uint32) bool { return slices.Contains(allow, id) }},
		"both":  {fmt.Sprintf(`,"ban":[%d],"allow":[%d,%d,%d]`, ban[1], allow[0], allow[1], allow[2]), 3, func(id uint32) bool { return id == allow[0] || id == allow[1] }},
	} {
		got := ask(c.fields, c.k)
		for i, a := range got.Answers {
			var want []uint32
			for _, l := range all.Answers[i].Labels {
				if c.permit(l.ID) && len(want) < c.k {
					want = append(want, l.ID)
				}
			}
			var ids []uint32
			for _, l := range a.Labels {
				ids = append(ids, l.ID)
			}
			// Of the allowed ones some may be behind those that all.Answers has.
			if len(want) > len(ids) || !slices.Equal(ids[:len(want)], want) || slices.ContainsFunc(ids, func(id uint32) bool { return !c.permit(id) }) {
				t.Errorf("%s: context %d: found %v, want %v", name, i, ids, want)
			}
		}
	}
	for fields, want := range map[string]string{
		`"allow":[200]`:       "allow[0]: found label 200, expected one below 200",
		`"ban":7`:             "ban: found 7, expected a list of labels",
		`"ban":null`:          "ban: found \\u003cnil\\u003e, expected a list of labels",
		`"ban":[1,-2]`:        "ban[1]: found -2, expected a label, a whole number from 0 on",
		`"ban":[1],"ban":[2]`: `found field \"a second ban\"`,
	} {
		context, _ := json.Marshal(q.Contexts[:1])
		if status, _, text := post(t, server.URL+"/topk", fmt.Sprintf(`{"contexts":%s,%s}`, context, fields)); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: found %d %s, want %s", fields, status, text, want)
		}
	}
}

// A tokenizer may have ids beyond the rows, and any name.
func TestATokenizerWithIDsBeyondTheRows(t *testing.T) {
	s := testFiles(t, t.TempDir(), 3, testLabels, testDim, nil)
	var tokens []string
	for id := range testLabels + 1 {
		tokens = append(tokens, fmt.Sprintf(`"t%d":%d`, id, id))
	}
	s.vocab = filepath.Join(filepath.Dir(s.head), "sha256-17")
	if err := os.WriteFile(s.vocab, []byte(`{"model":{"vocab":{`+strings.Join(tokens, ",")+`}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	_, server := serve(t, s)
	status, r, text := post(t, server.URL+"/topk", query{Contexts: drawContexts(3, 1, testDim), K: 2})
	if status != http.StatusOK || *r.Answers[0].Labels[0].Text != fmt.Sprintf("t%d", r.Answers[0].Labels[0].ID) {
		t.Errorf("found %d %s", status, text)
	}
}

func TestAnswersAreThoseOfTheLibrary(t *testing.T) {
	tail := func(c *screen.Config) {
		n, ranges := len(c.Clusters)/c.Dim, []float64(nil)
		for range 3 * n {
			ranges = append(ranges, math.Inf(-1), math.Inf(1))
		}
		c.Tail, _ = screen.NewTail(screen.TailConfig{Clusters: n, Temperatures: []float64{1}, Intercepts: make([]float32, n),
			Slopes: make([]float32, len(c.Clusters)), Squares: make([]float32, 2*n), Directions: make([]float32, c.Dim), Ranges: ranges})
	}
	for _, c := range []struct {
		name   string
		change func(*screen.Config)
		path   string
		k      int
		source string
	}{
		{"the best labels", nil, "/topk", 5, "set"},
		{"more labels than a set has", nil, "/topk", 150, "layer"},
		{"log-probabilities of the exact layer", nil, "/logprobs", 5, "layer"},
		{"log-probabilities over a tail", tail, "/logprobs", 5, "set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := testFiles(t, t.TempDir(), 1, testLabels, testDim, c.change)
			_, server := serve(t, s)
			for _, n := range []int{1, testContexts} {
				q := query{Contexts: drawContexts(uint64(n), n, testDim), K: c.k}
				status, got, text := post(t, server.URL+c.path, q)
				if status != http.StatusOK {
					t.Fatalf("status %d: %s", status, text)
				}
				checkReply(t, got, s, q, c.path == "/logprobs")
				if status, _, again := post(t, server.URL+c.path, map[string]any{"k": c.k, "contexts": base64Of(t, q.Contexts)}); again != text {
					t.Errorf("the same in base64: found %d %s, expected %s", status, again, text)
				}
				if got.Generation != 1 || got.Answers[0].Source != c.source {
					t.Errorf("found generation %d and source %q, expected 1 and %q", got.Generation, got.Answers[0].Source, c.source)
				}
			}
		})
	}
}

// A request may name a budget, and the answer says which one of the screen stood for it: those
// below the smallest are refused, and "exact" is the exact layer.
func TestARequestWithABudget(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, func(c *screen.Config) {
		for i := range c.Lists {
			c.Lists[i].Shares = make([]uint16, len(c.Lists[i].IDs)) // all in the second budget
			for j := range c.Lists[i].Shares {
				if c.Lists[i].Shares[j] = 9; j < 6 {
					c.Lists[i].Shares[j] = 10
				}
			}
		}
		c.Ladder = []screen.Rung{{Budget: 6, Share: 10}, {Budget: 50, Share: 9}}
	})
	_, server := serve(t, s)
	contexts := base64Of(t, drawContexts(1, 3, testDim))
	for _, c := range []struct {
		budget any
		k      int
		status int
		source string
		used   float64
	}{
		{50, 7, http.StatusOK, "set", 50}, {7.5, 6, http.StatusOK, "set", 6}, {7.5, 7, http.StatusOK, "layer", 6}, {1e9, 7, http.StatusOK, "set", 50},
		{"exact", 5, http.StatusOK, "layer", 0}, {5, 5, http.StatusOK, "set", 6}, {1e-9, 5, http.StatusOK, "set", 6}, {-1, 5, http.StatusBadRequest, "", 0},
	} {
		status, got, text := post(t, server.URL+"/topk", map[string]any{"k": c.k, "contexts": contexts, "budget": c.budget})
		if status != c.status || status == http.StatusOK && (got.Answers[0].Source != c.source || got.Budget != c.used) {
			t.Errorf("budget %v, k %d: found %d %s, expected %d from %q at %v", c.budget, c.k, status, text, c.status, c.source, c.used)
		}
	}
}

func TestALayerWithoutVocabularyAnswersWithIDs(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil)
	s.vocab = ""
	_, server := serve(t, s)
	if _, got, text := post(t, server.URL+"/topk", query{Contexts: drawContexts(1, 1, testDim), K: 2}); len(got.Answers) != 1 || strings.Contains(text, "text") || strings.Contains(text, "logprob") {
		t.Errorf("found %s, expected ids and logits alone", text)
	}
}

// A request without k gets the five best labels, or as many as the limit allows.
func TestARequestWithoutK(t *testing.T) {
	for _, c := range []struct{ most, want int }{{100, defaultK}, {3, 3}} {
		v := &service{limits: limits{contexts: 1, k: c.most}, dim: 1}
		q, err := v.decode(strings.NewReader(`{"contexts":[[0.5]]}`))
		if err != nil || q.K != c.want || len(q.Contexts) != 1 {
			t.Errorf("at most %d: found %+v, %v, expected k of %d", c.most, q, err, c.want)
		}
	}
	_, server := serve(t, testFiles(t, t.TempDir(), 1, testLabels, testDim, nil))
	if status, got, text := post(t, server.URL+"/topk", map[string]any{"contexts": drawContexts(1, 2, testDim)}); status != http.StatusOK || len(got.Answers) != 2 || len(got.Answers[0].Labels) != defaultK {
		t.Errorf("found %d %s, expected two answers of %d labels", status, text, defaultK)
	}
}

func TestAnUnknownPathIsAnErrorInJSON(t *testing.T) {
	_, server := serve(t, testFiles(t, t.TempDir(), 1, testLabels, testDim, nil))
	for _, path := range []string{"/", "/top", "/topk/"} {
		want := `{"error":"path: found \"` + path + `\", expected /topk, /logprobs, /audit, /contexts, /healthz, /readyz or /metrics"}`
		if status, text := get(t, server.URL+path); status != http.StatusNotFound || strings.TrimSpace(text) != want {
			t.Errorf("%s: found %d %s, expected 404 %s", path, status, text, want)
		}
	}
}

// What a body may cost holds while it is decoded: whatever it holds, it takes a small
// multiple of its size.
func TestBodiesTakeNoMoreMemoryThanAFewTimesTheirSize(t *testing.T) {
	const size = 4 << 20
	v := &service{limits: limits{body: size, contexts: 256, k: 100}, dim: 650}
	numbers := strings.Repeat("0,", v.dim-1) + "0"
	for _, c := range []struct{ name, begin, repeated, want string }{
		{"empty contexts", `{"contexts":[[]`, ",[]", "contexts[0]: found 0 numbers, expected 650"},
		{"contexts in a context", `{"contexts":[[[]`, ",[]", "contexts[0]: found [], expected a number of float32"},
		{"objects in a context", `{"contexts":[[{}`, ",{}", "contexts[0]: found {}, expected a number of float32"},
		{"numbers in a context", `{"contexts":[[0`, ",0", "contexts[0]: found "},
		{"a text of base64", `{"contexts":["`, "AAAA", "contexts[0]: found "},
		{"contexts", `{"contexts":[[` + numbers + `]`, ",[" + numbers + "]", "contexts: found more than 256, expected 1 to 256"},
		{"lists without an end", `{"contexts":[`, "[", "exceeded max depth"},
		{"k", `{"k":1`, "1", "k: found number 111"},
		{"a name", `{"`, "k", "found field \"kkkk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := c.begin + strings.Repeat(c.repeated, (size-len(c.begin)-10)/len(c.repeated))
			switch {
			case strings.HasSuffix(c.begin, `["`):
				body += `"]}`
			case strings.HasPrefix(c.begin, `{"contexts":[[`):
				body += `]]}`
			case c.begin == `{"`:
				body += `":1}`
			default:
				body += "}"
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := v.decode(strings.NewReader(body))
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 8*size {
				t.Errorf("found %d bytes of memory for a body of %d, expected at most 8 times as many", took, len(body))
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found the error %.200v, expected %q in it", err, c.want)
			}
		})
	}
}

// A client gets the answer to a body that is refused at its beginning, and can go on with
// the connection.
func TestARefusedBodyIsReadToItsEnd(t *testing.T) {
	v := &service{limits: limits{body: 4 << 20, contexts: 10, k: 5}, dim: testDim}
	server := httptest.NewServer(v.handler(false))
	defer server.Close()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	answers := bufio.NewReader(connection)
	body := `{"contexts":[[]` + strings.Repeat(",[]", 1<<20) + `]}`
	for range 3 {
		if _, err := fmt.Fprintf(connection, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			t.Fatalf("found %v while a body is sent, expected that it is read", err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if want := `{"error":"body: contexts[0]: found 0 numbers, expected 12"}` + "\n"; err != nil || answer.StatusCode != 400 || string(text) != want {
			t.Fatalf("found %d %s(%v), expected 400 %s", answer.StatusCode, text, err, want)
		}
	}
}

// An answer that has no JSON is the service's error, and not an empty body.
func TestAnAnswerWithoutJSONIsAnError(t *testing.T) {
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		logged.Reset()
		w := httptest.NewRecorder()
		respond(w, httptest.NewRequest(http.MethodPost, "/topk", nil), &reply{Generation: 1, Answers: []answer{{"set", []label{{ID: 1, Logit: x}}}}}, nil)
		if w.Code != http.StatusInternalServerError || w.Body.String() != "{\"error\":\"internal error\"}\n" {
			t.Errorf("%v: found %d %q, expected 500 and an internal error", x, w.Code, w.Body)
		}
		if !strings.Contains(logged.String(), fmt.Sprintf("/topk: json: unsupported value: %v", x)) {
			t.Errorf("%v: found the log %q, expected what went wrong", x, logged.String())
		}
	}
}

func TestBadRequests(t *testing.T) {
	_, server := serve(t, testFiles(t, t.TempDir(), 1, testLabels, testDim, nil))
	row := "[" + strings.Repeat("0.5,", testDim-1) + "0.5]"
	rows := func(n int) string { return strings.TrimSuffix(strings.Repeat(row+",", n), ",") }
	for _, c := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"no body", "", 400, "body: found its end, expected an object with contexts and k, up to its closing brace"},
		{"no JSON", "hello", 400, "body: invalid character 'h' looking for beginning of value"},
		{"half of a body", `{"k":1,"contexts":[[0.5`, 400, "body: found its end, expected an object with contexts and k, up to its closing brace"},
		{"two objects", `{"k":1,"contexts":[` + row + `]}{}`, 400, "body: found more after the object"},
		{"braces after the object", `{"k":1,"contexts":[` + row + `]}}}}garbage`, 400, "body: found more after the object"},
		{"a bracket after the object", `{"k":1,"contexts":[` + row + `]} ]`, 400, "body: found more after the object"},
		{"half of a text after the object", `{"k":1,"contexts":[` + row + `]}"`, 400, "body: found more after the object"},
		{"too much white space after the object", `{"k":1,"contexts":[` + row + `]}` + strings.Repeat(" ", 1<<16), 413, "body: found more than 65536 bytes"},
		{"an object without an end", `{"k":1,"contexts":[` + row + `]`, 400, "body: found its end, expected an object with contexts and k, up to its closing brace"},
		{"an object that a bracket ends", `{"k":1]`, 400, "body: invalid character ']' after object key:value pair"},
		{"a comma before the end", `{"k":1,}`, 400, "body: invalid character '}' looking for beginning of object key string"},
		{"a name that is a number", `{1:1}`, 400, "body: invalid character '1'"},
		{"a list", `[]`, 400, "body: found another value, expected an object"},
		{"null", `null`, 400, "body: found another value, expected an object"},
		{"a name twice", `{"k":1,"contexts":[` + row + `],"k":2}`, 400, `body: found field "a second k", expected contexts, k, budget, ban and allow, each once`},
		{"a name twice, in two cases", `{"k":1,"K":2,"contexts":[` + row + `]}`, 400, `body: found field "K", expected contexts, k, budget, ban and allow, each once`},
		{"a name in another case", `{"k":1,"Contexts":[` + row + `]}`, 400, `body: found field "Contexts", expected contexts, k, budget, ban and allow, each once`},
		{"a field that does not exist", `{"k":1,"contexts":[` + row + `],"temperature":1}`, 400, `body: found field "temperature", expected contexts, k, budget, ban and allow, each once`},
		{"a budget of 0", `{"k":1,"budget":0,"contexts":[` + row + `]}`, 400, `body: budget: found 0, expected a number above 0, or "exact"`},
		{"a budget that is a text", `{"k":1,"budget":"all","contexts":[` + row + `]}`, 400, `body: budget: found all, expected a number above 0, or "exact"`},
		{"a budget above all numbers", `{"k":1,"budget":1e999,"contexts":[` + row + `]}`, 400, `body: budget: found 1e999, expected a number above 0, or "exact"`},
		{"a body that is too long", `{"k":1,"contexts":[` + strings.Repeat(" ", 1<<16), 413, "body: found more than 65536 bytes"},
		{"no contexts", `{"k":1}`, 400, "contexts: found 0, expected 1 to 10"},
		{"contexts that are no list", `{"contexts":{}}`, 400, "body: contexts: found {, expected a list of contexts"},
		{"contexts that are null", `{"contexts":null}`, 400, "body: contexts: found null, expected a list of contexts"},
		{"contexts that are a number", `{"contexts":1e999}`, 400, "body: contexts: found 1e999, expected a list of contexts"},
		{"an empty list of contexts", `{"k":1,"contexts":[]}`, 400, "contexts: found 0, expected 1 to 10"},
		{"too many contexts", `{"k":1,"contexts":[` + rows(11) + `]}`, 400, "body: contexts: found more than 10, expected 1 to 10"},
		{"contexts not in a list of lists", `{"k":1,"contexts":` + row + `}`, 400, "body: contexts[0]: found 0.5, expected a list of numbers"},
		{"an empty context", `{"k":1,"contexts":[[]]}`, 400, "body: contexts[0]: found 0 numbers, expected 12"},
		{"a context that is null", `{"k":1,"contexts":[null]}`, 400, "body: contexts[0]: found null, expected a list of numbers"},
		{"a short context", `{"k":1,"contexts":[` + row + `,[1,2]]}`, 400, "body: contexts[1]: found 2 numbers, expected 12"},
		{"a long context", `{"k":1,"contexts":[` + row + `,[0` + strings.Repeat(",0", testDim) + `]]}`, 400, "body: contexts[1]: found 13 numbers, expected 12"},
		{"a number that is null, as JavaScript writes NaN", `{"k":1,"contexts":[[0.5,null]]}`, 400, "body: contexts[0]: found null, expected a number of float32"},
		{"NaN", `{"k":1,"contexts":[[NaN]]}`, 400, "body: invalid character 'N' looking for beginning of value"},
		{"a number beyond float32", `{"k":1,"contexts":[[1e39]]}`, 400, "body: contexts[0]: found 1e39, expected a number of float32"},
		{"a text for a number", `{"k":1,"contexts":[["1"]]}`, 400, `body: contexts[0]: found "1", expected a number of float32`},
		{"lists in a context", `{"k":1,"contexts":[[[1,2]]]}`, 400, "body: contexts[0]: found [1, expected a number of float32"},
		{"a text that is not base64", `{"k":1,"contexts":["1"]}`, 400, `body: contexts[0]: found "1", expected base64 of float32`},
		{"half a float32 in base64", `{"k":1,"contexts":["AAA="]}`, 400, `body: contexts[0]: found "AAA=", expected base64 of float32`},
		{"a short context in base64", `{"k":1,"contexts":["AAAAAA=="]}`, 400, "body: contexts[0]: found 1 numbers, expected 12"},
		{"NaN in base64", `{"k":1,"contexts":["` + base64.StdEncoding.EncodeToString(append(make([]byte, 4*testDim-4), 0, 0, 0xc0, 0x7f)) + `"]}`, 400,
			"body: contexts[0]: found NaN at element 11, expected finite numbers"},
		{"k that is null", `{"k":null,"contexts":[` + row + `]}`, 400, "body: k: found null, expected a small whole number, in digits"},
		{"k of many digits", `{"k":` + strings.Repeat("1", 5000) + `,"contexts":[` + row + `]}`, 400, "body: k: found number " + strings.Repeat("1", 23) + ", expected a small whole number, in digits"},
		{"k of 0", `{"k":0,"contexts":[` + row + `]}`, 400, "k: found 0, expected 1 to 150"},
		{"k below 1", `{"k":-1,"contexts":[` + row + `]}`, 400, "k: found -1, expected 1 to 150"},
		{"k above the limit", `{"k":151,"contexts":[` + row + `]}`, 400, "k: found 151, expected 1 to 150"},
		{"k that is no integer", `{"k":1.5,"contexts":[` + row + `]}`, 400, "body: k: found number 1.5, expected a small whole number, in digits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range []string{"/topk", "/logprobs"} {
				want, _ := json.Marshal(map[string]string{"error": c.want})
				if status, _, text := post(t, server.URL+path, c.body); status != c.status || strings.TrimSpace(text) != string(want) {
					t.Errorf("%s: found %d %sexpected %d %s", path, status, text, c.status, want)
				}
			}
		})
	}
	t.Run("GET", func(t *testing.T) {
		if status, text := get(t, server.URL+"/topk"); status != 405 || strings.TrimSpace(text) != `{"error":"method: found GET, expected POST"}` {
			t.Errorf("found %d %s", status, text)
		}
	})
	t.Run("a path that does not exist", func(t *testing.T) {
		if status, _ := get(t, server.URL+"/top"); status != 404 {
			t.Errorf("found %d, expected 404", status)
		}
	})
	t.Run("k above the labels", func(t *testing.T) {
		_, small := serve(t, testFiles(t, t.TempDir(), 1, 20, testDim, nil))
		if status, _, text := post(t, small.URL+"/topk", `{"k":21,"contexts":[`+row+`]}`); status != 400 || !strings.Contains(text, "k: found 21, expected 1 to the 20 labels") {
			t.Errorf("found %d %s", status, text)
		}
	})
}

// A soft cap bends logits, so that the log-sum of the bent ones is another: without it
// a service must not pretend to know probabilities.
func TestTheLogitsOfAHeadWithASoftCapAreBent(t *testing.T) {
	const labels, dim = 4, 2
	dir := t.TempDir()
	w := []float32{1, 0, 0, 1, 2, 0, 0, 2}
	layer, err := softmax.NewLayer(kernels.Float32Rows(w, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := screen.NewModel(screen.Config{Dim: dim, Labels: labels, Clusters: []float32{1, 1}, Lists: []screen.List{{IDs: []uint32{0, 2}}}, Fingerprint: layer.Fingerprint()})
	if err != nil {
		t.Fatal(err)
	}
	s := sources{head: dir, screen: filepath.Join(dir, "m.l2s")}
	for _, err := range []error{
		tensorfile.WriteSafetensors(filepath.Join(dir, "model.safetensors"), tensorfile.Array{Name: "lm_head.weight", Data: w, Shape: []int{labels, dim}}),
		os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"gemma2","final_logit_softcapping":3.0,"tie_word_embeddings":false,"vocab_size":4}`), 0o644),
		m.Save(s.screen),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h, err := head.Open(dir, head.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	_, server := serve(t, s)
	q := query{Contexts: [][]float32{{3, 1}}, K: 1}
	if _, got, text := post(t, server.URL+"/topk", q); len(got.Answers) != 1 || got.Answers[0].Labels[0].Logit != h.Logit(6) || h.Logit(6) > 3 {
		t.Errorf("found %s, expected the logit %v", text, h.Logit(6))
	}
	if status, _, text := post(t, server.URL+"/logprobs", q); status != http.StatusNotImplemented || !strings.Contains(text, "soft cap") {
		t.Errorf("found %d %s, expected 501", status, text)
	}
}

// Files that are bad are refused, and the old ones serve on; then good ones are taken.
func TestReload(t *testing.T) {
	good := testFiles(t, t.TempDir(), 2, testLabels, testDim, nil)
	other := testFiles(t, t.TempDir(), 3, testLabels, testDim, nil)
	wide := testFiles(t, t.TempDir(), 4, testLabels, testDim+1, nil)
	copyFile := func(t *testing.T, to, from string) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to+".part", data, 0o644)
		}
		if err == nil {
			err = os.Rename(to+".part", to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all := func(t *testing.T, to, from sources) {
		copyFile(t, to.head, from.head)
		copyFile(t, to.bias, from.bias)
		copyFile(t, to.screen, from.screen)
		copyFile(t, to.vocab, from.vocab)
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, s sources)
		want   string // "" for none
	}{
		{"nothing has changed", func(*testing.T, sources) {}, ""},
		{"other files", func(t *testing.T, s sources) { all(t, s, good) }, ""},
		{"no screen", func(t *testing.T, s sources) { os.Remove(s.screen) }, "no such file"},
		{"a broken screen", func(t *testing.T, s sources) { os.Truncate(s.screen, 100) }, "m.l2s"},
		{"the screen of another layer", func(t *testing.T, s sources) { copyFile(t, s.screen, other.screen) }, "made for another layer"},
		{"another layer", func(t *testing.T, s sources) { copyFile(t, s.head, other.head) }, "made for another layer"},
		{"a layer of another dimension", func(t *testing.T, s sources) { copyFile(t, s.head, wide.head) }, "found a model of dimension 12, expected the layer's, 13"},
		{"contexts of another dimension", func(t *testing.T, s sources) { all(t, s, wide) }, "dim: found 13, expected 12, as clients send"},
		{"a layer with NaN", func(t *testing.T, s sources) {
			data, err := os.ReadFile(good.head)
			if err != nil {
				t.Fatal(err)
			}
			copy(data[len(data)-4:], []byte{0, 0, 0xc0, 0x7f})
			os.WriteFile(s.head+".part", data, 0o644)
			os.Rename(s.head+".part", s.head)
		}, "NaN"},
		{"a vocabulary of another length", func(t *testing.T, s sources) { os.WriteFile(s.vocab, []byte("one\ntwo\n"), 0o644) }, "vocab.txt: found 2 lines, expected one for each of the 200 labels"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil)
			before := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil) // what s was
			v, server := serve(t, s)
			q := query{Contexts: drawContexts(1, 3, testDim), K: 5}
			c.change(t, s)
			err := v.reload()
			serves, generation := before, uint64(1)
			if c.want == "" {
				serves, generation = s, 2
				if err != nil {
					t.Fatal(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("found error %v, expected one with %q", err, c.want)
			}
			status, got, text := post(t, server.URL+"/topk", q)
			if status != http.StatusOK || got.Generation != generation {
				t.Fatalf("found %d %s, expected an answer of generation %d", status, text, generation)
			}
			checkReply(t, got, serves, q, false)
			all(t, s, good)
			if err := v.reload(); err != nil {
				t.Fatalf("good files after it: %v", err)
			}
			if _, got, _ := post(t, server.URL+"/topk", q); got.Generation != generation+1 {
				t.Errorf("found generation %d, expected %d", got.Generation, generation+1)
			} else {
				checkReply(t, got, good, q, false)
			}
		})
	}
}

// The old head is closed when no query uses it any more, and not before.
func TestReloadClosesTheOldFiles(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil)
	v, _ := serve(t, s)
	var old *files
	if err := v.pool.Do(func(q *screen.Searcher) error {
		x, _ := v.opened.Load(q.Model())
		old = x.(*files)
		if err := v.reload(); err != nil {
			return err
		}
		return old.head.Read(func() error {
			_, err := q.TopK(make([]softmax.Prediction, 3), drawContexts(1, 1, testDim)[0])
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	closed := false
	for range 10000 { // a goroutine does it
		if closed = old.head.Read(func() error { return nil }) != nil; closed {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !closed {
		t.Error("the old head is open")
	}
	n := 0
	v.opened.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("found %d generations of files, expected 1", n)
	}
}

func TestHealthReadinessAndMetrics(t *testing.T) {
	v, server := serve(t, testFiles(t, t.TempDir(), 1, testLabels, testDim, nil))
	q := query{Contexts: drawContexts(1, 3, testDim), K: 5}
	post(t, server.URL+"/topk", q)
	post(t, server.URL+"/logprobs", q)
	post(t, server.URL+"/topk", "{")
	if err := v.reload(); err != nil {
		t.Fatal(err)
	}
	if status, text := get(t, server.URL+"/healthz"); status != 200 || text != "ok\n" {
		t.Errorf("/healthz: found %d %s", status, text)
	}
	if status, text := get(t, server.URL+"/readyz"); status != 200 || text != "generation 2\n" {
		t.Errorf("/readyz: found %d %s", status, text)
	}
	status, text := get(t, server.URL+"/metrics")
	if status != 200 {
		t.Fatal(text)
	}
	stats := v.pool.Stats()
	for _, want := range []string{
		`l2s_http_requests_total{code="200",handler="topk"} 1`,
		`l2s_http_requests_total{code="400",handler="topk"} 1`,
		`l2s_http_requests_total{code="200",handler="logprobs"} 1`,
		`l2s_http_request_seconds_count{handler="topk"} 2`,
		`l2s_contexts_total 6`,
		`l2s_exact_total 3`,
		fmt.Sprintf("l2s_candidates_total %d", stats.Candidates),
		fmt.Sprintf("l2s_routing_rows_total %d", stats.Routing),
		`l2s_lacking_total 0`,
		`l2s_generation 2`,
		`go_goroutines `,
	} {
		if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("/metrics: found no line %q", want)
		}
	}
	v.stopping.Store(true)
	if status, _ := get(t, server.URL+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: found %d while it stops, expected 503", status)
	}
}

func TestNewServiceRefusesBadFiles(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil)
	other := testFiles(t, t.TempDir(), 2, testLabels, testDim, nil)
	s.screen = other.screen
	if v, err := newService(s, testLimits); v != nil || !errors.Is(err, screen.ErrLayer) || !strings.Contains(err.Error(), s.screen) {
		t.Errorf("found error %v, expected ErrLayer and the name of the screen", err)
	}
	s.head = "missing.npy"
	if v, err := newService(s, testLimits); v != nil || err == nil || !strings.Contains(err.Error(), s.head) {
		t.Errorf("found error %v, expected one that names %s", err, s.head)
	}
}

// The page and the metrics say when contexts have drifted.
func TestAuditOfTheService(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, func(c *screen.Config) {
		c.K, c.HeldOut = 5, 1000
		c.Ladder = []screen.Rung{{Budget: 50, Precision1: screen.Estimate{Value: 1, Low: 0.999, High: 1}, PrecisionK: screen.Estimate{Value: 1, Low: 0.999, High: 1}}}
	})
	v, server := serve(t, s)
	if _, text := get(t, server.URL+"/audit"); !strings.Contains(text, "no audit") {
		t.Errorf("found %q, expected no audit", text)
	}
	alarms := make(chan screen.Alarm, 10)
	var err error
	if v.audit, err = v.pool.Audit(screen.AuditOptions{Share: 1, Alarm: func(x screen.Alarm) { alarms <- x }}); err != nil {
		t.Fatal(err)
	}
	defer v.audit.Stop()
	if _, text := get(t, server.URL+"/audit"); !strings.HasPrefix(text, "Nothing is known yet.") || !strings.Contains(text, "geometry is not watched") {
		t.Errorf("found %q at the beginning", text)
	}
	for seed := uint64(0); len(alarms) == 0; seed++ { // the lists have nothing to do with the contexts
		if status, _, text := post(t, server.URL+"/topk", query{Contexts: drawContexts(seed, testContexts, testDim), K: 5}); status != http.StatusOK {
			t.Fatal(text)
		}
	}
	if x := <-alarms; x.Of != "P@1" && x.Of != "P@5" {
		t.Errorf("found an alarm of %s, expected one of precision", x.Of)
	}
	if _, text := get(t, server.URL+"/audit"); !strings.HasPrefix(text, "ALARM") || !strings.Contains(text, "expected 1.0000") {
		t.Errorf("found %q, expected the alarm", text)
	}
	_, text := get(t, server.URL+"/metrics")
	if !strings.Contains(text, `l2s_audit_alarm{of="P@1"} 1`) && !strings.Contains(text, `l2s_audit_alarm{of="P@k"} 1`) || !strings.Contains(text, `l2s_audit_alarm{of="lead"} 0`) {
		t.Errorf("found no alarm in the metrics:\n%s", text)
	}
	for _, name := range []string{"l2s_audit_sampled", "l2s_audit_audited", `l2s_audit_precision{end="low",k="1"}`, `l2s_audit_precision_expected{end="value",k="k"}`} {
		if !strings.Contains(text, name) {
			t.Errorf("found no %s in the metrics", name)
		}
	}
}

// Contexts are kept if the service is told to, as a file that training opens.
func TestContextsAreKept(t *testing.T) {
	v, server := serve(t, testFiles(t, t.TempDir(), 1, testLabels, testDim, nil))
	if status, text := get(t, server.URL+"/contexts"); status != http.StatusNotFound || !strings.Contains(text, "-keep") {
		t.Errorf("found %d %s, expected 404", status, text)
	}
	var err error
	if v.kept, err = learn.NewReservoir(testDim, 0, 1<<20, 0); err != nil {
		t.Fatal(err)
	}
	q := query{Contexts: drawContexts(1, 3, testDim), K: 5}
	for range 2 { // the same ones again are the same ones
		if status, _, text := post(t, server.URL+"/topk", q); status != http.StatusOK {
			t.Fatal(text)
		}
	}
	_, text := get(t, server.URL+"/contexts")
	path := filepath.Join(t.TempDir(), "H.npy")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := head.OpenContexts(path, testDim)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := slices.Concat(q.Contexts...)
	if len(c.Rows()) != len(want) {
		t.Fatalf("found %d numbers, expected %d", len(c.Rows()), len(want))
	}
	for i, x := range c.Rows() {
		if math.Abs(float64(x-want[i])) > 0.002 {
			t.Errorf("element %d: found %v, expected %v", i, x, want[i])
		}
	}
}

// The more requests are under way, the smaller the budget.
func TestBudgetsUnderLoad(t *testing.T) {
	rungs := []screen.Rung{{Budget: 6}, {Budget: 12}, {Budget: 25}, {Budget: 50}}
	m, err := screen.NewModel(screen.Config{Dim: 1, Labels: 100, Clusters: []float32{1}, Lists: []screen.List{{IDs: []uint32{1}}}, Ladder: rungs, Budget: 25})
	if err != nil {
		t.Fatal(err)
	}
	v := &service{limits: limits{busy: 10}}
	for _, c := range []struct {
		asked    float64
		k        int
		underWay int64
		want     float64
	}{{0, 1, 10, 0}, {0, 1, 11, 0}, {0, 1, 21, 12}, {0, 1, 41, 12}, {0, 1, 100, 6}, {0, 5, 100, 12}, {0, 20, 100, 0}, {50, 1, 21, 25}, {60, 1, 21, 25}, {6, 1, 100, 0}, {softmax.Exact, 1, 100, 0}} {
		if got := v.lower(m, softmax.Request{K: c.k, Budget: c.asked}, c.underWay); got != c.want {
			t.Errorf("%+v: found the budget %v", c, got)
		}
	}
	v.limits.busy = 0
	if got := v.lower(m, softmax.Request{K: 1}, 1000); got != 0 {
		t.Errorf("found the budget %v without -busy", got)
	}
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, func(c *screen.Config) { c.Ladder = []screen.Rung{{Budget: 10}, {Budget: 50}} })
	w, server := serve(t, s)
	w.limits.busy = 2
	w.underWay.Store(40)
	if status, got, text := post(t, server.URL+"/topk", query{Contexts: drawContexts(1, 2, testDim), K: 5}); status != http.StatusOK || !got.Lowered || got.Budget != 10 {
		t.Errorf("found %d %s, expected the budget 10", status, text)
	}
	if _, text := get(t, server.URL+"/metrics"); !strings.Contains(text, "l2s_lowered_total 2") || !strings.Contains(text, "l2s_under_way 40") {
		t.Errorf("found no two contexts with a lowered budget in the metrics:\n%s", text)
	}
}

// Without a screen the exact layer answers, and the contexts of requests become a screen.
func TestAServiceThatLearns(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil)
	s.learn, s.screen = 64<<20, ""
	v, server := serve(t, s)
	t.Cleanup(v.learner.Close)
	for _, path := range []string{"/topk", "/logprobs"} {
		status, got, text := post(t, server.URL+path, query{Contexts: drawContexts(1, 5, testDim), K: 5})
		if status != http.StatusOK || got.Answers[0].Source != "layer" {
			t.Errorf("%s: found %d %s, expected an answer of the layer", path, status, text)
		}
	}
	if n := v.learner.Contexts().Kept(); n != 5 {
		t.Errorf("found %d contexts kept, expected 5", n)
	}
	v.steps.Store(learn.Unlearnt, learn.Event{Text: "P@1: found .9 of .99"})
	if _, text := get(t, server.URL+"/audit"); !strings.Contains(text, "until a screen is learned: 5 contexts") || !strings.Contains(text, `Last event "unlearnt": P@1: found .9 of .99`) {
		t.Errorf("found %q", text)
	}
	if _, got, _ := post(t, server.URL+"/topk", query{Contexts: drawContexts(1, 5, testDim), K: 5}); got.Generation != v.pool.Generation() {
		t.Errorf("found generation %d, expected the pool's, %d", got.Generation, v.pool.Generation())
	}
	if _, text := get(t, server.URL+"/metrics"); !strings.Contains(text, "l2s_screened 0") {
		t.Error("found no l2s_screened 0 in the metrics")
	}
	if err := v.reload(); err == nil {
		t.Error("found a reload")
	}
}

// A size has a unit, or is in bytes.
func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-4": -4, "268435456": 256 << 20, "256MiB": 256 << 20, "3KiB": 3 << 10, "1GiB": 1 << 30, "8589934591GiB": 8589934591 << 30,
		"": -1, "MiB": -1, "1.5GiB": -1, "256MB": -1, "8589934592GiB": -1, "9223372036854775808": -1,
	} {
		var n size
		if err := n.Set(text); (err != nil) != (want == -1) || err == nil && int64(n) != want {
			t.Errorf("%q: found %d and the error %v, expected %d", text, n, err, want)
		}
	}
}

// Numbers that make no sense end the start with a sentence that names the flag.
func TestFlagsAreChecked(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil)
	for _, args := range [][]string{{"-learn", "-4"}, {"-keep", "-1"}, {"-busy", "-3"}, {"-max-k", "0"}, {"-max-contexts", "-1"}, {"-max-body", "0"}, {"-timeout", "-1s"}, {"-grace", "-1s"}, {"-drain", "-1s"}} {
		err := run(append([]string{"-listen", "127.0.0.1:0", "-head", s.head, "-bias", s.bias, "-screen", s.screen}, args...), nil)
		if err == nil || !strings.HasPrefix(err.Error(), args[0]+":") {
			t.Errorf("%v: found the error %v, expected one of %s", args, err, args[0])
		}
	}
}
