package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// server attacks l2s-llama serve: by clients that send more than a request and vanish, by bodies of
// many small values, and by texts that take the tokenizer long. All places are free again soon after,
// the process does not grow by more than --max-memory and some, and no more texts are at the tokenizer
// than there are places. After each attack, and under way, a request that is computed alone has the
// answer that it had before them.
func server(ctx context.Context, s *soak) error {
	if s.gguf == "" || s.lib == "" {
		fmt.Println("soak: no server: found no -gguf, or no -lib with llama.cpp's libraries")
		return nil
	}
	const places, memory = 6, 128 << 20
	var output said
	cmd := exec.Command(s.program(ctx, "l2s-llama").Path, "serve", "--model", s.gguf, "--lib", s.lib, "--threads", "1", "--addr", "127.0.0.1:0",
		"--parallel", "2", "--waiting", "4", "--max-memory", "128", "--grace", "1s")
	address, gone, err := begin(cmd, &output, "listening on http://")
	if err != nil {
		return err
	}
	// metric returns a value of /metrics.
	metric := func(name string) (x float64) {
		r, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return -1
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(text), "\n"+name+" ")
		fmt.Sscan(rest, &x)
		return x
	}
	idle := func(what string) {
		for begin := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			if metric("l2s_requests_active") == 0 && metric("l2s_requests_waiting") == 0 {
				return
			}
			if time.Since(begin) > 3*time.Minute { // on a busy machine
				s.fault("server: found places taken 3 minutes after %s", what)
				return
			}
		}
	}
	send := func(path, body, after string) net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return nil
		}
		c.SetDeadline(time.Now().Add(5 * time.Minute))
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s%s", path, len(body), body, after)
		return c
	}
	// together sends a body some times at once, and counts the statuses.
	together := func(n int, body string) {
		var wait sync.WaitGroup
		for range n {
			wait.Go(func() {
				c := send("/v1/completions", body, "")
				if c == nil {
					return
				}
				defer c.Close()
				text, err := io.ReadAll(c)
				if code, _, _ := strings.Cut(strings.TrimPrefix(string(text), "HTTP/1.1 "), " "); ctx.Err() == nil && (err != nil || code != "200" && code != "400" && code != "503") {
					s.fault("server: found %.200q, %v", text, err)
				}
			})
		}
		wait.Wait()
	}
	// honest asks until the server has a place, and compares the answer with the first one.
	first := ""
	honest := func(when string) {
		for begin := time.Now(); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			r, err := http.Post("http://"+address+"/v1/completions", "application/json",
				strings.NewReader(`{"prompt":"The file has","max_tokens":12,"temperature":0,"ignore_eos":true,"logprobs":3,"deterministic":true}`))
			if err != nil {
				s.fault("server: found no answer %s: %v", when, err)
				return
			}
			text, err := io.ReadAll(r.Body)
			r.Body.Close()
			if r.StatusCode == 503 && time.Since(begin) < 3*time.Minute { // on a busy machine
				continue
			}
			_, choices, _ := strings.Cut(string(text), `"choices":`)
			choices, _, _ = strings.Cut(choices, `,"created":`)
			if first == "" {
				first = choices
			}
			if err != nil || r.StatusCode != 200 || choices == "" || choices != first {
				s.fault("server: found %d, %.300q, %v %s, expected %.300q", r.StatusCode, text, err, when, first)
			}
			s.count("answers of the server that were compared", 1)
			return
		}
	}
	honest("at the beginning")
	small := strings.Repeat("1,", 4<<20-100)
	base := rss(cmd.Process.Pid)
	for ctx.Err() == nil {
		var vanish []net.Conn
		for i := range 2 * places {
			if c := send("/v1/completions", fmt.Sprintf(`{"prompt":"a","max_tokens":100000,"ignore_eos":true,"stream":%v}`, i%2 == 0), "x"); c != nil {
				vanish = append(vanish, c)
			}
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		for _, c := range vanish {
			c.Close()
		}
		idle("clients that vanished")
		honest("after clients that vanished")
		s.count("clients of the server that vanished", len(vanish))
		together(4, `{"prompt":[`+small+`1],"max_tokens":1}`)
		together(4, `{"prompt":"a","max_tokens":1,"allowed_tokens":[`+small+`1]}`)
		if resident := rss(cmd.Process.Pid); resident > base+memory+128<<20 {
			s.fault("server: found %d MiB resident, %d MiB at the beginning", resident>>20, base>>20)
			base = resident
		}
		if held := metric("l2s_body_bytes"); held != 0 && ctx.Err() == nil {
			s.fault("server: found %v bytes held of bodies whose answers are sent", held)
		}
		honest("after bodies of small values")
		s.count("bodies of small values", 8)
		done := make(chan struct{})
		var under sync.WaitGroup
		under.Go(func() {
			together(4*places, fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, strings.Repeat(" ", 60_000)))
		})
		under.Go(func() { honest("under long texts") })
		go func() { under.Wait(); close(done) }()
		for end := false; !end; {
			select {
			case <-done:
				end = true
			case <-time.After(20 * time.Millisecond):
			}
			if n := metric("l2s_requests_tokenizing"); n > places {
				s.fault("server: found %v texts at the tokenizer, expected at most the %d places", n, places)
			}
		}
		s.count("long texts for the tokenizer", 4*places)
		idle("long texts")
		honest("after long texts")
	}
	c := send("/v1/completions", "{", "")
	if c != nil {
		defer c.Close()
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-gone:
		if code, bad := ended(err, nil); bad != nil || code > 1 {
			s.fault("server: found the exit status %d, %v after SIGTERM", code, bad)
		}
	case <-time.After(3 * time.Minute):
		s.fault("server: found it running 3 minutes after SIGTERM")
		cmd.Process.Kill()
	}
	return nil
}
