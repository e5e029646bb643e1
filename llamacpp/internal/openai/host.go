package openai

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// thisMachine reports whether the Host of a request names this machine by an address that only it
// has. Any other name may be of a page of another site: its owner can lead its name to 127.0.0.1
// after a browser has loaded the page, which counts as of the same site then.
func thisMachine(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else if h, ok := strings.CutPrefix(host, "["); ok {
		name = strings.TrimSuffix(h, "]")
	}
	if host == "" || strings.EqualFold(name, "localhost") { // HTTP 1.0 of no browser has no host
		return true
	}
	at, err := netip.ParseAddr(name)
	return err == nil && at.Unmap().IsLoopback()
}

// local refuses requests for other hosts than this machine.
func (s *Server) local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !thisMachine(r.Host) {
			s.refuse(w, wrong("", "found the host %.80q, expected localhost, 127.0.0.1 or [::1]: the server answers this machine alone; a proxy must send one of these as Host", r.Host).with(http.StatusForbidden).code("wrong_host"))
			return
		}
		h.ServeHTTP(w, r)
	})
}
