package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/learning-to-screen/l2s"
)

// service starts the example service. Clients ask it, some of them slowly or with odd bodies,
// while the file of the screen is replaced by another screen and by a torn file: each answer comes
// from one of the two screens, and none is a 500.
func service(ctx context.Context, s *soak) error {
	var models [2]*l2s.Index
	var files [2][]byte
	var err error
	for i, name := range []string{"a.l2s", "b.l2s"} {
		if models[i], err = s.load(name); err != nil {
			return err
		}
		if files[i], err = os.ReadFile(s.path(name)); err != nil {
			return err
		}
	}
	put := func(content []byte) error {
		if err := os.WriteFile(s.path("served.new"), content, 0o666); err != nil {
			return err
		}
		return os.Rename(s.path("served.new"), s.path("served.l2s"))
	}
	if err := put(files[0]); err != nil {
		return err
	}
	var output said
	cmd := s.program(context.Background(), "serve", "-head", s.path("W.npy"), "-bias", s.path("b.npy"), "-index", s.path("served.l2s"),
		"-addr", "127.0.0.1:0", "-max-memory", "16777216", "-timeout", "2m", "-grace", "2m") // for a busy machine
	address, gone, err := begin(cmd, &output, "; http://")
	if err != nil {
		return err
	}
	url := "http://" + address
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() { s.client(ctx, url, models) })
	}
	wait.Go(func() { s.slowClients(ctx, address) })
	resident, begin, steady := int64(0), time.Now(), int64(0)
	for i := 0; ctx.Err() == nil; i++ {
		content := files[i%2]
		if i%3 == 2 {
			content = content[:rand.IntN(len(content))]
		}
		if err := put(content); err != nil {
			s.fault("service: %v", err)
		}
		cmd.Process.Signal(syscall.SIGHUP)
		select {
		case err := <-gone:
			s.fault("service: it has ended: %v: %.2000s", err, output.String())
			wait.Wait()
			return nil
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
		if resident = rss(cmd.Process.Pid); steady == 0 && time.Since(begin) > 20*time.Second {
			steady = resident
		}
		// The memory of requests under way, the same again until it is collected, and files that
		// are swapped.
		if steady > 0 && resident > steady+96<<20 {
			s.fault("service: found %d MiB resident, %d MiB after 20 s", resident>>20, steady>>20)
			steady = resident
		}
		s.count("swaps", 1)
	}
	wait.Wait()
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-gone:
		if code, bad := ended(err, nil); bad != nil || code != 0 {
			s.fault("service: found the exit status %d, %v after SIGTERM", code, bad)
		}
	case <-time.After(3 * time.Minute):
		s.fault("service: found it running 3 minutes after SIGTERM")
		cmd.Process.Kill()
	}
	s.count("MiB resident of the service", int(resident>>20))
	return nil
}

// said is the output of a program, to be read while it runs.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// client compares answers, and sends bodies that are broken.
func (s *soak) client(ctx context.Context, url string, models [2]*l2s.Index) {
	var by [2]*l2s.Searcher
	for i, m := range models {
		var err error
		if by[i], err = l2s.NewSearcher(s.data.Layer, m, l2s.Options{OverTail: true}); err != nil {
			s.fault("service: %v", err)
			return
		}
	}
	type answer struct {
		Answers []struct {
			Source string
			Labels []struct {
				ID    uint32
				Logit float64
			}
		}
	}
	asks, cut := http.Client{Timeout: 3 * time.Minute}, 0
	for i := 0; ctx.Err() == nil; i++ {
		k, h := 1+rand.IntN(8), s.h(i)
		if rand.IntN(10) == 0 {
			for j := range h {
				h[j] *= 1e6
			}
		}
		request := map[string]any{"k": k, "contexts": [][]float32{h}}
		var budget float64
		if rand.IntN(2) == 0 {
			budget = []float64{1e-9, 1, 20, 1e9}[rand.IntN(4)]
			request["budget"] = budget
		}
		body, _ := json.Marshal(request)
		odd := rand.IntN(4) == 0
		if odd {
			for range 1 + rand.IntN(4) {
				at := rand.IntN(len(body))
				switch rand.IntN(3) {
				case 0:
					body[at] = byte(rand.Uint32())
				case 1:
					body = append(body[:at:at], body[at+rand.IntN(len(body)-at):]...)
				case 2:
					body = slices.Insert(body, at, body[rand.IntN(at+1):at]...)
				}
				if len(body) == 0 {
					break
				}
			}
		}
		path := []string{"/topk", "/logprobs"}[rand.IntN(2)]
		ask, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, bytes.NewReader(body))
		if err != nil {
			s.fault("service: %v", err)
			return
		}
		r, err := asks.Do(ask)
		if err != nil {
			// The service gives a request two minutes to come, which a paused machine exceeds.
			if cut++; cut > 3+i/100 && ctx.Err() == nil {
				s.fault("service: found %d of %d requests cut off: %v", cut, i, err)
			}
			continue
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		s.count(fmt.Sprintf("answers %d", r.StatusCode), 1)
		switch {
		case r.StatusCode == http.StatusServiceUnavailable:
			if r.Header.Get("Retry-After") == "" {
				s.fault("service: found 503 without Retry-After")
			}
			time.Sleep(10 * time.Millisecond)
			continue
		case err != nil && ctx.Err() != nil:
			continue
		case r.StatusCode >= 500, err != nil:
			s.fault("service: found %d %s, %v for %q", r.StatusCode, text, err, body)
			continue
		case odd:
			continue
		case r.StatusCode != http.StatusOK:
			s.fault("service: found %d %s for %q", r.StatusCode, text, body)
			continue
		}
		var a answer
		if err := json.Unmarshal(text, &a); err != nil || len(a.Answers) != 1 {
			s.fault("service: found %q, %v", text, err)
			continue
		}
		right := false
		for _, x := range by {
			want := make([]l2s.Prediction, k)
			b, err := x.Search(want, h, l2s.Request{Budget: budget})
			if err != nil {
				s.fault("service: %v", err)
			}
			same := len(a.Answers[0].Labels) == b.Count && a.Answers[0].Source == map[bool]string{false: "set", true: "layer"}[b.Exact]
			for j := 0; same && j < b.Count; j++ {
				same = a.Answers[0].Labels[j].ID == want[j].ID && a.Answers[0].Labels[j].Logit == want[j].Logit
			}
			right = right || same
		}
		if !right {
			s.fault("service: found %s, expected the answer of one of the screens", text)
		}
	}
}

// slowClients send a part of a request, or do not read a large answer, and disconnect.
func (s *soak) slowClients(ctx context.Context, address string) {
	contexts := make([][]float32, 256)
	for i := range contexts {
		contexts[i] = s.h(i)
	}
	body, _ := json.Marshal(map[string]any{"k": 100, "contexts": contexts})
	for ctx.Err() == nil {
		var clients []net.Conn
		for range 20 + rand.IntN(20) {
			c, err := net.Dial("tcp", address)
			if err != nil {
				continue
			}
			c.(*net.TCPConn).SetReadBuffer(4096)
			part := body
			if rand.IntN(2) == 0 {
				part = body[:rand.IntN(len(body))]
			}
			clients = append(clients, c)
			go fmt.Fprintf(c, "POST /topk HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), part)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rand.IntN(2000)) * time.Millisecond):
		}
		for _, c := range clients {
			c.Close()
		}
		s.count("slow clients", len(clients))
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// rss is the resident memory of a process in bytes, 0 if it is not known.
func rss(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, found := strings.Cut(string(status), "VmRSS:")
	var kb int64
	if err != nil || !found {
		return 0
	}
	fmt.Sscan(rest, &kb)
	return kb << 10
}

// killed starts a program, kills it after a while unless it ends before, and reports whether it was
// killed.
func killed(cmd *exec.Cmd, after time.Duration) (was bool, output []byte, err error) {
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := cmd.Start(); err != nil {
		return false, nil, err
	}
	timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	return !timer.Stop() && err != nil, b.Bytes(), err
}

// kills trains the same screen again and again, and kills the training: the file is the screen of
// an undisturbed training.
func kills(ctx context.Context, s *soak) error {
	want, err := os.ReadFile(s.path("a.l2s"))
	if err != nil {
		return err
	}
	begin := time.Now()
	if text, err := s.train(ctx, "timed.l2s", "train.npy").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	took := time.Since(begin)
	for ctx.Err() == nil {
		was, text, err := killed(s.train(ctx, "killed.l2s", "train.npy"), time.Duration(rand.Int64N(int64(took))))
		if ctx.Err() != nil {
			return nil
		}
		if !was {
			if code, bad := ended(err, text); bad != nil || code != 0 {
				s.fault("kills: found the exit status %d, %v of a training: %s", code, bad, text)
			}
		} else {
			s.count("trainings killed", 1)
		}
		found, err := os.ReadFile(s.path("killed.l2s"))
		if err == nil && !bytes.Equal(found, want) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.fault("kills: found another screen after a kill, or %v", err)
		}
		if err == nil {
			os.Remove(s.path("killed.l2s"))
			s.count("trainings ended after kills", 1)
		}
	}
	return nil
}

// disk saves a screen to a disk that is full, and to one that is not: the file is the old one or
// the new one.
func disk(ctx context.Context, s *soak) error {
	m, err := s.load("a.l2s")
	if err != nil {
		return err
	}
	want, err := os.ReadFile(s.path("a.l2s"))
	if err != nil {
		return err
	}
	folder, unmount, err := mount(s.path("disk"), 3*len(want))
	if err != nil {
		fmt.Println("soak: no small disk:", err)
		return nil
	}
	defer unmount()
	path := folder + "/m.l2s"
	old := []byte("precious")
	for i := 0; ctx.Err() == nil; i++ {
		if err := os.WriteFile(path, old, 0o666); err != nil {
			return err
		}
		room := 3*len(want) - rand.IntN(4*len(want))
		os.WriteFile(folder+"/filler", make([]byte, max(0, 3*len(want)-max(0, room))), 0o666) // until the disk is full
		var failed error
		if i%20 == 0 {
			text, err := s.train(ctx, path, "train.npy").CombinedOutput()
			if ctx.Err() != nil {
				return nil
			}
			code, bad := ended(err, text)
			if failed = err; bad != nil || code > 1 {
				s.fault("disk: found the exit status %d, %v: %s", code, bad, text)
			}
			if failed != nil { // what the next run would continue from
				os.Remove(path + ".partial")
				os.Remove(path + ".partial-labels")
			}
		} else {
			failed = m.Save(path)
		}
		found, err := os.ReadFile(path)
		if err != nil || failed == nil && !bytes.Equal(found, want) || failed != nil && !bytes.Equal(found, old) {
			s.fault("disk: found %d bytes, %v after a save with the error %v", len(found), err, failed)
		}
		entries, err := os.ReadDir(folder)
		for _, e := range entries {
			if e.Name() != "m.l2s" && e.Name() != "filler" {
				s.fault("disk: found %s left", e.Name())
				os.Remove(folder + "/" + e.Name())
			}
		}
		if err != nil {
			s.fault("disk: %v", err)
		}
		if os.Remove(folder + "/filler"); failed != nil {
			s.count("saves to a full disk", 1)
		} else {
			s.count("saves to a small disk", 1)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// bridge kills runs of l2s-llama contexts and has two work on the same files, until both files
// equal the files of an undisturbed run, and gives the command senseless texts and numbers.
func bridge(ctx context.Context, s *soak) error {
	if s.gguf == "" || s.lib == "" {
		fmt.Println("soak: no bridge: found no -gguf, or no -lib with llama.cpp's libraries")
		return nil
	}
	var text strings.Builder
	words := strings.Fields("the file server name of section port configuration when a value is set and not empty an error says which")
	for text.Len() < 150_000 { // some of the parts after which a run can continue
		text.WriteString(words[rand.IntN(len(words))] + " ")
	}
	if err := os.WriteFile(s.path("text"), []byte(text.String()), 0o666); err != nil {
		return err
	}
	llama := func(verb string, args ...string) *exec.Cmd {
		return s.program(ctx, "l2s-llama", append([]string{verb, "--model", s.gguf, "--lib", s.lib, "--threads", "1"}, args...)...)
	}
	contexts := func(name string) *exec.Cmd {
		return llama("contexts", "--text", s.path("text"), "--window", "48", "--warmup", "8", "--states", "4", "--out", s.path(name+".h.npy"), "--targets", s.path(name+".t.npy"))
	}
	s.oddBridge(ctx, llama)
	begin := time.Now()
	if out, err := contexts("whole").CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("%w: %s", err, out)
	}
	took := time.Since(begin)
	for ; ctx.Err() == nil; s.oddBridge(ctx, llama) {
		for done := false; !done && ctx.Err() == nil; {
			var other sync.WaitGroup
			other.Go(func() {
				time.Sleep(time.Duration(rand.Int64N(int64(took))))
				was, out, err := killed(contexts("killed"), 10*took)
				if _, bad := ended(err, out); bad != nil && !was && ctx.Err() == nil {
					s.fault("bridge: the other run: %v", bad)
				}
			})
			was, out, err := killed(contexts("killed"), time.Duration(rand.Int64N(int64(took))))
			if other.Wait(); was {
				s.count("runs of contexts killed", 1)
			} else if _, bad := ended(err, out); bad != nil && ctx.Err() == nil {
				s.fault("bridge: contexts: %v", bad)
			}
			_, err = os.Stat(s.path("killed.h.npy"))
			done = err == nil
		}
		if ctx.Err() != nil {
			return nil
		}
		for _, x := range []string{".h.npy", ".t.npy"} {
			want, _ := os.ReadFile(s.path("whole" + x))
			found, err := os.ReadFile(s.path("killed" + x))
			if err != nil || len(want) == 0 || !bytes.Equal(found, want) {
				s.fault("bridge: %s: found %d bytes, %v after kills, expected the %d of a run left alone", x, len(found), err, len(want))
			}
			os.Remove(s.path("killed" + x))
			os.Remove(s.path("killed" + x + ".part"))
		}
		os.Remove(s.path("killed.h.npy.part.json"))
		s.count("files of contexts compared after kills", 2)
	}
	return nil
}

// oddBridge gives the command senseless arguments and files: it ends by itself, with an exit
// status, not by a signal.
func (s *soak) oddBridge(ctx context.Context, llama func(verb string, args ...string) *exec.Cmd) {
	random := make([]byte, 1+rand.IntN(6000))
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	if err := os.WriteFile(s.path("odd"), random, 0o666); err != nil {
		s.fault("bridge: %v", err)
		return
	}
	numbers := []string{"-1", "0", "1", "513", "1000000", "4294967296", "9223372036854775807"}
	number := func() string { return numbers[rand.IntN(len(numbers))] }
	for _, args := range [][]string{
		{"generate", "--file", s.path("odd"), "-n", "3", "--context", "16384"},
		{"generate", "--prompt", string(bytes.ReplaceAll(random[:len(random)/2], []byte{0}, nil)) + "a", "-n", "2"},
		{"generate", "--prompt", "a", "-n", "2", "--threads", number(), "--context", number()},
		{"contexts", "--restart", "--text", s.path("odd"), "--out", s.path("odd.h.npy"), "--targets", s.path("odd.t.npy"), "--window", "40", "--warmup", "2"},
		{"contexts", "--restart", "--text", s.path("odd"), "--out", s.path("odd.h.npy"), "--targets", s.path("odd.t.npy"), "--window", number(), "--states", number(), "--warmup", number()},
		{"compare", "--text", s.path("odd"), "--prompts", "2", "--n", "2", "--prompt-tokens", number()},
	} {
		cmd := llama(args[0], args[1:]...)
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return
		}
		if _, bad := ended(err, out); bad != nil {
			s.fault("bridge: %q: %v", args[:2], bad)
		}
		s.count("odd calls of l2s-llama", 1)
	}
}

// begin starts a server, and returns its address, which it prints behind a mark, and what ends when
// it ends.
func begin(cmd *exec.Cmd, output *said, mark string) (address string, gone chan error, err error) {
	cmd.Stderr = output
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	gone = make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	for {
		select {
		case err := <-gone:
			return "", nil, fmt.Errorf("%s: %w: %s", cmd.Args[0], err, output.String())
		case <-time.After(50 * time.Millisecond):
			_, rest, _ := strings.Cut(output.String(), mark)
			if line, _, whole := strings.Cut(rest, "\n"); whole {
				return line, gone, nil
			}
		}
	}
}
