package main

import (
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// While a reload hangs, the service answers, takes further signals, and ends.
func TestAReloadThatHangsKeepsNoSignalWaiting(t *testing.T) {
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(end.String(), func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			begun, release := make(chan struct{}), make(chan struct{})
			var running atomic.Int32
			reload := func() {
				if n := running.Add(1); n != 1 {
					t.Errorf("found %d reloads at once, expected 1", n)
				}
				begun <- struct{}{}
				<-release
				running.Add(-1)
			}
			var stopping atomic.Bool
			signals, ended := make(chan os.Signal), make(chan error) // a send waits until the signal is taken
			server := &http.Server{Handler: http.NotFoundHandler()}
			go func() {
				ended <- serveUntil(server, listener, signals, reload, func() { stopping.Store(true) }, 0, time.Hour)
			}()
			signals <- syscall.SIGHUP
			<-begun
			for range 3 {
				signals <- syscall.SIGHUP
			}
			release <- struct{}{}
			<-begun // of those that came meanwhile
			if status, _ := get(t, "http://"+listener.Addr().String()); status != http.StatusNotFound {
				t.Errorf("found status %d, expected 404", status)
			}
			http.DefaultClient.CloseIdleConnections()
			signals <- end
			if err := <-ended; err != nil || !stopping.Load() {
				t.Errorf("found error %v and stopping %v, expected none and true", err, stopping.Load())
			}
			close(release)
		})
	}
}

// A request that takes longer than the time it has at the end is cut, and the program
// says so.
func TestARequestThatTakesTooLongIsCut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-release
	})}
	signals, ended := make(chan os.Signal), make(chan error, 1)
	go func() { ended <- serveUntil(server, listener, signals, func() {}, func() {}, 0, time.Millisecond) }()
	go http.Get("http://" + listener.Addr().String())
	<-begun
	signals <- syscall.SIGTERM
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "still open after -grace 1ms") {
		t.Errorf("found %v, expected that connections were still open", err)
	}
}
