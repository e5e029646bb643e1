package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/demolm"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// The tests start themselves as the program.
func TestMain(m *testing.M) {
	if os.Getenv("L2S_TEST_SERVE") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is the program at work.
type process struct {
	url string
	cmd *exec.Cmd
	log chan string // its lines
}

func start(t *testing.T, s sources, flags ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-listen", "127.0.0.1:0", "-head", s.head, "-bias", s.bias, "-screen", s.screen, "-vocab", s.vocab}, flags...)...)
	cmd.Env = append(os.Environ(), "L2S_TEST_SERVE=1")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, log: make(chan string, 1000)}
	go func() {
		defer close(p.log)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.log <- lines.Text()
		}
	}()
	t.Cleanup(func() { cmd.Process.Kill() })
	_, address, _ := strings.Cut(p.waitFor(t, "listening on "), "listening on ")
	p.url = "http://" + address
	return p
}

// waitFor reads the log up to a line with that text.
func (p *process) waitFor(t *testing.T, text string) string {
	t.Helper()
	late := time.After(2 * time.Minute) // so that a fault of the program does not stop the tests for good
	for {
		select {
		case line, open := <-p.log:
			if strings.Contains(line, text) {
				return line
			}
			if !open {
				t.Fatalf("the program ended: found no line with %q in its log", text)
			}
		case <-late:
			t.Fatalf("found no line with %q in the log", text)
		}
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *process) wait(t *testing.T) {
	t.Helper()
	for range p.log {
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("found %v, expected the exit status 0", err)
	}
}

// At the end readiness fails first, then connections are refused, and a request that
// has begun is answered.
func TestGracefulStop(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			p := start(t, s, "-drain", "1h", "-timeout", "10m", "-grace", "10m")
			q := query{Contexts: drawContexts(1, 1, testDim), K: 5}
			body, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			address := strings.TrimPrefix(p.url, "http://")
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// net/http drops a connection whose headers it has not read when the end comes.
			// It sends 100 Continue as soon as the handler reads the body: the request has begun.
			fmt.Fprintf(conn, "POST /topk HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
			answers := bufio.NewReader(conn)
			if answer, err := http.ReadResponse(answers, nil); err != nil || answer.StatusCode != http.StatusContinue {
				t.Fatalf("the beginning of a request: found %v, %v, expected 100 Continue", answer, err)
			}
			conn.Write(body[:10])
			p.signal(t, sig)
			p.waitFor(t, "stopping")
			if status, _ := get(t, p.url+"/readyz"); status != http.StatusServiceUnavailable {
				t.Errorf("/readyz: found %d, expected 503", status)
			}
			if status, _, text := post(t, p.url+"/topk", q); status != http.StatusOK {
				t.Errorf("a request before the end: found %d %s", status, text)
			}
			p.signal(t, sig)
			http.DefaultClient.CloseIdleConnections()
			for {
				c, err := net.Dial("tcp", address)
				if err != nil {
					break // refused
				}
				c.Close()
				time.Sleep(time.Millisecond)
			}
			conn.Write(body[10:])
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("the request that had begun: %v", err)
			}
			var got reply
			if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("the request that had begun: found status %d, %v", answer.StatusCode, err)
			}
			checkReply(t, got, s, q, false)
			p.wait(t)
		})
	}
}

var (
	loadHead     = flag.String("load-head", "", "the layer under load, as l2s names sources; empty: the layer of the model of l2s demo")
	loadBias     = flag.String("load-bias", "", "its bias")
	loadScreen   = flag.String("load-screen", "", "its screen")
	loadContexts = flag.String("load-contexts", "", "contexts to ask for")
	loadRequests = flag.Int("load-requests", 100, "requests of each client between two swaps")
)

// loaded is what the program serves under load: two layers in turn.
type loaded struct {
	contexts [][]float32
	weights  []float32
	dim      int
	bias     [2][]float32
	model    [2]*screen.Model
}

func readTensor(t *testing.T, source string) (x []float32, cols int) {
	t.Helper()
	f, err := tensorfile.OpenTensor(source)
	if err == nil {
		defer f.Close()
		x, err = f.Float32s()
	}
	if err != nil {
		t.Fatal(err)
	}
	return x, f.Cols()
}

func newLoaded(t *testing.T) *loaded {
	t.Helper()
	l := &loaded{}
	var rows []float32
	if *loadHead != "" {
		l.weights, l.dim = readTensor(t, *loadHead)
		l.bias[0], _ = readTensor(t, *loadBias)
		rows, _ = readTensor(t, *loadContexts)
		m, err := screen.Load(*loadScreen)
		if err != nil {
			t.Fatal(err)
		}
		l.model[0] = m
	} else {
		m, err := demolm.Load("../../benchmarks/lm/model")
		if err != nil {
			t.Fatal(err)
		}
		l.weights, l.bias[0] = dense.Weights(m.Layer), m.Layer.Bias()
		l.dim = m.Layer.Dim()
		if rows, err = m.Contexts(t.Context(), 4*demolm.Stream, 1, nil); err != nil {
			t.Fatal(err)
		}
		o := train.DefaultOptions()
		o.Clusters, o.Budget, o.Iterations = 20, 60, 0
		if l.model[0], _, err = train.Run(t.Context(), l.layer(t, 0), rows, o); err != nil {
			t.Fatal(err)
		}
	}
	rows = rows[:min(len(rows), 5000*l.dim)]
	for h := range slices.Chunk(rows, l.dim) {
		l.contexts = append(l.contexts, h)
	}
	// The other layer has another bias, and so another fingerprint and other answers.
	for i, b := range l.bias[0] {
		l.bias[1] = append(l.bias[1], b+float32(i%3)/4)
	}
	m := l.model[0]
	c := screen.Config{
		Dim: l.dim, Labels: len(l.bias[0]), Clusters: m.ClusterWeights(), Shells: m.Shells(),
		Ladder: m.Ladder(), Budget: m.Budget(), Always: len(m.Always()), Fingerprint: l.layer(t, 1).Fingerprint(),
	}
	for cell := range m.Cells() {
		c.Lists = append(c.Lists, m.List(cell))
	}
	var err error
	if l.model[1], err = screen.NewModel(c); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *loaded) layer(t *testing.T, which int) *softmax.Layer {
	t.Helper()
	layer, err := softmax.NewLayer(kernels.Float32Rows(l.weights, l.dim), l.bias[which])
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// write puts the files of one of the layers in the place of the others.
func (l *loaded) write(t *testing.T, s sources, which int) {
	t.Helper()
	for _, err := range []error{
		tensorfile.WriteNPY(s.head, l.weights, len(l.weights)/l.dim, l.dim),
		tensorfile.WriteNPY(s.bias, l.bias[which], len(l.bias[which])),
		l.model[which].Save(s.screen),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// answers are the k best labels of all contexts, of one of the layers.
func (l *loaded) answers(t *testing.T, which, k int) (all [][]softmax.Prediction) {
	t.Helper()
	s, err := screen.NewSearcher(l.model[which], l.layer(t, which))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range l.contexts {
		top := make([]softmax.Prediction, k)
		if _, err := s.TopK(top, h); err != nil {
			t.Fatal(err)
		}
		all = append(all, top)
	}
	return all
}

// heap is the memory that the program's heap holds after collections, in bytes.
func (p *process) heap(t *testing.T) int {
	t.Helper()
	least := math.MaxInt // of a few readings: the last generation may be on its way out at the first ones
	for range 5 {
		get(t, p.url+"/debug/pprof/heap?gc=1") // what waits for a cleanup goes with the second
		_, text := get(t, p.url+"/debug/pprof/heap?gc=1&debug=1")
		_, rest, _ := strings.Cut(text, "# HeapAlloc = ")
		n, _, _ := strings.Cut(rest, "\n")
		bytes, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		least = min(least, bytes)
		time.Sleep(5 * time.Millisecond)
	}
	return least
}

// Four clients ask while the files are swapped ten times: no request fails, each answer
// comes from the generation that it names, bit for bit, and the heap does not grow.
// With -v it prints what `make service-load` is for.
func TestServiceUnderLoad(t *testing.T) {
	const clients, swaps, k = 4, 10, 5
	l := newLoaded(t)
	dir := t.TempDir()
	s := sources{head: filepath.Join(dir, "W.npy"), bias: filepath.Join(dir, "b.npy"), screen: filepath.Join(dir, "m.l2s")}
	want := [2][][]softmax.Prediction{l.answers(t, 0, k), l.answers(t, 1, k)}
	for _, c := range []struct {
		batch  int
		base64 bool
	}{{1, false}, {16, false}, {1, true}, {16, true}} {
		if testing.Short() && c.batch > 1 {
			continue // of each form the smallest, such as for the race detector
		}
		batch, name := c.batch, fmt.Sprintf("%d contexts a request", c.batch)
		if c.base64 {
			name += " in base64"
		}
		t.Run(name, func(t *testing.T) {
			l.write(t, s, 0)
			p := start(t, s, "-pprof", "-timeout", "1h") // a busy machine may stop a request for long
			var bodies []string                          // made beforehand, to measure the service
			for i := 0; i+batch <= len(l.contexts); i += batch {
				q := map[string]any{"k": k, "contexts": l.contexts[i : i+batch]}
				if c.base64 {
					q["contexts"] = base64Of(t, l.contexts[i:i+batch])
				}
				b, err := json.Marshal(q)
				if err != nil {
					t.Fatal(err)
				}
				bodies = append(bodies, string(b))
			}
			check := func(r *reply, first int) error {
				if len(r.Answers) != batch {
					return fmt.Errorf("found %d answers, expected %d", len(r.Answers), batch)
				}
				for i, a := range r.Answers {
					var got []softmax.Prediction
					for _, x := range a.Labels {
						got = append(got, softmax.Prediction{ID: x.ID, Logit: x.Logit})
					}
					if w := want[(r.Generation-1)%2][first+i]; !slices.Equal(got, w) {
						return fmt.Errorf("context %d, generation %d: found %v, expected %v", first+i, r.Generation, got, w)
					}
				}
				return nil
			}
			var (
				done     atomic.Int64 // requests
				working  atomic.Int64 // clients
				pause    sync.RWMutex // held by each request, and while the heap is measured
				paused   time.Duration
				times    [clients][]time.Duration
				failures [clients]error
				wg       sync.WaitGroup
			)
			total := int64(clients * max(1, *loadRequests*2/(batch+1)) * (swaps + 1)) // larger requests, fewer of them
			begin := time.Now()
			for c := range clients {
				working.Add(1)
				wg.Go(func() {
					defer working.Add(-1)
					client := &http.Client{Transport: &http.Transport{}}
					defer client.CloseIdleConnections()
					for i := c * len(bodies) / clients; done.Add(1) <= total; i++ {
						at := i % len(bodies)
						pause.RLock()
						start := time.Now()
						answer, err := client.Post(p.url+"/topk", "application/json", strings.NewReader(bodies[at]))
						if err != nil {
							pause.RUnlock()
							failures[c] = err
							return
						}
						data, err := io.ReadAll(answer.Body)
						answer.Body.Close()
						times[c] = append(times[c], time.Since(start))
						pause.RUnlock()
						var r reply
						if err == nil && answer.StatusCode != http.StatusOK {
							err = errors.New(string(data))
						}
						if err == nil {
							err = json.Unmarshal(data, &r)
						}
						if err == nil {
							err = check(&r, at*batch)
						}
						if err != nil {
							failures[c] = err
							return
						}
					}
				})
			}
			// Each swap comes after its share of the requests.
			var heaps []int
			for i := range swaps {
				for done.Load() < total*int64(i+1)/(swaps+1) && working.Load() > 0 {
					time.Sleep(time.Millisecond)
				}
				l.write(t, s, (i+1)%2)
				p.signal(t, syscall.SIGHUP)
				p.waitFor(t, fmt.Sprintf("generation %d is served", i+2))
				pause.Lock()
				begin := time.Now()
				heaps = append(heaps, p.heap(t))
				paused += time.Since(begin)
				pause.Unlock()
			}
			wg.Wait()
			seconds := (time.Since(begin) - paused).Seconds()
			var all []time.Duration
			for c := range clients {
				if failures[c] != nil {
					t.Errorf("client %d: %v", c, failures[c])
				}
				all = append(all, times[c]...)
			}
			if int64(len(all)) != total {
				t.Errorf("found %d requests answered, expected %d", len(all), total)
			}
			p.signal(t, syscall.SIGTERM)
			p.wait(t)
			// A generation that is not released would add the codes of the layer with each swap.
			early, late := slices.Max(heaps[:swaps/2]), slices.Max(heaps[swaps/2:])
			if codes := len(l.weights); late > early+codes/2 {
				t.Errorf("found a heap of %d bytes after the first swaps and %d after the last, expected it to grow by less than half of a layer's %d bytes of codes", early, late, codes)
			}
			slices.Sort(all)
			at := func(p float64) time.Duration { return all[int(p*float64(len(all)-1))].Round(time.Microsecond) }
			t.Logf("%d x %d, %d clients, %d cores, level %s: %.0f requests/s, p50 %v, p99 %v, longest %v; %d swaps, %d errors in %d requests; heap after a collection %.1f MiB in the first %d swaps, %.1f MiB in the last",
				len(l.weights)/l.dim, l.dim, clients, runtime.GOMAXPROCS(0), kernels.Level(), float64(len(all))/seconds, at(0.5), at(0.99), at(1), swaps, int(total)-len(all), len(all), float64(early)/(1<<20), swaps/2, float64(late)/(1<<20))
		})
	}
}
