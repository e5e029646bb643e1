package main

import (
	"io"
	"net/http"
)

// What requests under way hold is counted, about: a part for each, a body three times (its numbers as they come,
// and as float32), each label of an answer twice, as it is found and as JSON, and then the bytes of the answer
// until the client has read them. So clients that send or read slowly cannot take more than the limit.
const (
	requestBytes = 64 << 10
	bodyTimes    = 3
	labelBytes   = 300
)

var errFull = failure{http.StatusServiceUnavailable, "memory: found other requests under way that take what there is for all, expected this one later"}

// hold is what one request holds of the memory for all.
type hold struct {
	of    *service
	bytes int64
}

// grow holds n more bytes, or fewer if n is below 0. It returns errFull if other requests leave no room for them:
// a request that is alone has room.
func (m *hold) grow(n int64) error {
	now := m.of.memory.Add(n)
	if n > 0 && now > m.of.limits.memory && now > m.bytes+n {
		m.of.memory.Add(-n)
		return errFull
	}
	m.bytes += n
	return nil
}

func (m *hold) release() {
	m.of.memory.Add(-m.bytes)
	m.bytes = 0
}

// heldReader holds what it reads.
type heldReader struct {
	io.Reader
	m *hold
}

func (r heldReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if full := r.m.grow(bodyTimes * int64(n)); full != nil {
		return 0, full
	}
	return n, err
}
