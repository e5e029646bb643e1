package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Clients that read nothing, and clients that send slowly, take no more memory together than the limit: others are
// told to come later, and are answered once these have gone.
func TestSlowClientsHaveALimit(t *testing.T) {
	const contexts, k, memory = 1000, 200, 24 << 20
	v, err := newService(testFiles(t, t.TempDir(), 1, testLabels, testDim, nil), limits{body: 4 << 20, contexts: contexts, k: k, memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(v.routes(newMetrics(v), false))
	defer server.Close()
	large, err := json.Marshal(query{Contexts: drawContexts(1, contexts, testDim), K: k})
	if err != nil {
		t.Fatal(err)
	}
	small, err := json.Marshal(query{Contexts: drawContexts(1, 1, testDim), K: 1})
	if err != nil {
		t.Fatal(err)
	}
	await := func(t *testing.T, what string, f func() bool) {
		t.Helper()
		for range 6000 {
			if f() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("found no %s within a minute", what)
	}
	status := func() (code int, retry string) {
		r, err := http.Post(server.URL+"/topk", "application/json", strings.NewReader(string(small)))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		io.Copy(io.Discard, r.Body)
		return r.StatusCode, r.Header.Get("Retry-After")
	}
	for name, body := range map[string]string{"readers": string(large), "senders": string(large[:len(large)-1])} {
		t.Run(name, func(t *testing.T) {
			var clients []net.Conn
			address := server.Listener.Addr().String()
			most := int64(0)
			for range 60 {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				c.(*net.TCPConn).SetReadBuffer(4096)
				clients = append(clients, c)
				go fmt.Fprintf(c, "POST /topk HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(large), body)
			}
			await(t, "answer 503", func() bool {
				most = max(most, v.memory.Load())
				code, retry := status()
				if code == http.StatusServiceUnavailable && retry != "1" {
					t.Fatalf("found Retry-After %q, expected 1", retry)
				}
				return code == http.StatusServiceUnavailable
			})
			if alone := int64(requestBytes + bodyTimes*len(large) + labelBytes*contexts*k); most > memory+alone {
				t.Errorf("found %d bytes held, expected at most %d and a request of %d", most, memory, alone)
			}
			for _, c := range clients {
				c.Close()
			}
			await(t, "end of all that is held", func() bool { return v.memory.Load() == 0 })
			if code, _ := status(); code != http.StatusOK {
				t.Errorf("found %d after the slow clients have gone, expected 200", code)
			}
		})
	}
}

// A request that is alone is answered, however small the limit is, and what it holds is given back.
func TestARequestThatIsAlone(t *testing.T) {
	v, server := serve(t, testFiles(t, t.TempDir(), 1, testLabels, testDim, nil))
	v.limits.memory = 1
	for range 3 {
		if code, _, text := post(t, server.URL+"/topk", query{Contexts: drawContexts(1, 10, testDim), K: 150}); code != http.StatusOK {
			t.Errorf("found %d %s, expected an answer", code, text)
		}
		for range 1000 {
			if v.memory.Load() == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if n := v.memory.Load(); n != 0 {
			t.Errorf("found %d bytes held after the answer", n)
		}
	}
}
