package openai

import "testing"

func TestThisMachine(t *testing.T) {
	for _, host := range []string{"", "localhost", "LocalHost:9272", "127.0.0.1", "127.0.0.1:80", "127.1.2.3:9", "[::1]", "[::1]:9272", "::1", "[::ffff:127.0.0.1]:1"} {
		if !thisMachine(host) {
			t.Errorf("%q: found it refused", host)
		}
	}
	for _, host := range []string{"evil.com", "evil.com:9272", "localhost.evil.com", "127.0.0.1.evil.com", "127.0.0.1.nip.io:80", "evil.com:127.0.0.1", "192.168.0.1", "0.0.0.0:80", "[::]", "[::2]:80", "localhost:80:80", "[", "2130706433", "notlocalhost"} {
		if thisMachine(host) {
			t.Errorf("%q: found it accepted", host)
		}
	}
}
