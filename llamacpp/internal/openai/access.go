package openai

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/rs/cors"
)

// keyed refuses requests without one of the keys, as llama-server does, but for /health. It compares
// hashes, each with all keys, so that its time tells nothing about a key.
func (s *Server) keyed(h http.Handler) http.Handler {
	if len(s.o.Keys) == 0 {
		return h
	}
	var keys [][sha256.Size]byte
	for _, key := range s.o.Keys {
		keys = append(keys, sha256.Sum256([]byte(key)))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			h.ServeHTTP(w, r)
			return
		}
		const scheme = "bearer "
		found := r.Header.Get("Authorization")
		if len(found) >= len(scheme) && strings.EqualFold(found[:len(scheme)], scheme) {
			found = strings.TrimSpace(found[len(scheme):])
		} else {
			found = r.Header.Get("X-Api-Key") // "" if there is none, which is no key
		}
		hash, good := sha256.Sum256([]byte(found)), 0
		for _, key := range keys {
			good |= subtle.ConstantTimeCompare(hash[:], key[:])
		}
		if good == 0 {
			s.refuse(w, wrong("", "found no key of this server, expected the header Authorization: Bearer KEY").with(http.StatusUnauthorized).code("invalid_api_key"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// crossOrigin refuses requests of pages of other sites, in a browser on this machine for instance, but
// for those of the origins that may ask, and answers the questions of browsers about these.
func (s *Server) crossOrigin(h http.Handler) http.Handler {
	if slices.Contains(s.o.Origins, "*") {
		return shared("*").Handler(h)
	}
	guard := http.NewCrossOriginProtection()
	for _, origin := range s.o.Origins {
		_ = guard.AddTrustedOrigin(origin) // CheckOrigin has read it
	}
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, wrong("", "found a request of a page of another site, expected none").with(http.StatusForbidden).code("cross_origin"))
	}))
	h = guard.Handler(h)
	if len(s.o.Origins) == 0 {
		return h
	}
	return shared(s.o.Origins...).Handler(h)
}

func shared(origins ...string) *cors.Cors {
	return cors.New(cors.Options{AllowedOrigins: origins, AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost}, AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{"X-Request-Id", ignoredHeader, "Retry-After"}, MaxAge: 600, AllowPrivateNetwork: true})
}

// CheckOrigin returns an error for a text that is no origin of pages, as browsers write it: a scheme and a
// host, or "*".
func CheckOrigin(origin string) error {
	switch {
	case origin == "*":
		return nil
	case strings.Contains(origin, "*") || origin != strings.ToLower(origin):
		return errors.New("found a star or a capital letter, expected a scheme and a host, or * alone")
	}
	return http.NewCrossOriginProtection().AddTrustedOrigin(origin)
}
