package simd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A CI leg relies on TestForcedLevelIsTheLevel: if L2S_SIMD is set, the tests run on that level; if
// L2S_BEST is set, it is the highest level that was found.
func TestForcedLevelIsTheLevel(t *testing.T) {
	if err := Err(); err != nil {
		t.Fatal(err)
	}
	found := best().String()
	if bestI8MM {
		found += "+i8mm"
	}
	if want := os.Getenv("L2S_BEST"); want != "" && found != want {
		t.Errorf("highest level %s, want %s", found, want)
	}
	want := os.Getenv(EnvVar)
	if want == "" {
		want = best().String()
	}
	if got := Current().String(); got != want {
		t.Errorf("level %s, want %s", got, want)
	}
	t.Logf("level %s, vnni %v, i8mm %v", Current(), Has.VNNI, Has.I8MM)
}

func TestChoose(t *testing.T) {
	if l, err := choose(""); err != nil || l != best() {
		t.Errorf("empty value: %v, %v", l, err)
	}
	if l, err := choose("generic"); err != nil || l != Generic {
		t.Errorf("generic: %v, %v", l, err)
	}
	for _, bad := range []string{"avx", "AVX2", "sse", " generic"} {
		if _, err := choose(bad); err == nil || !strings.Contains(err.Error(), "unknown level") {
			t.Errorf("%q: error %v, want unknown level", bad, err)
		}
	}
	old := available
	defer func() { available = old }()
	for _, c := range []struct {
		levels    []Level
		no, there []string
	}{
		{[]Level{Generic}, []string{"avx2", "avx512", "neon", "neondot"}, []string{"generic"}},
		{[]Level{Generic, AVX2}, []string{"avx512", "neon", "neondot"}, []string{"generic", "avx2"}},
		{[]Level{Generic, NEON}, []string{"avx2", "avx512", "neondot"}, []string{"generic", "neon"}},
		{[]Level{Generic, NEON, NEONDot}, []string{"avx2", "avx512"}, []string{"generic", "neon", "neondot"}},
	} {
		available = c.levels
		for _, name := range c.no {
			if _, err := choose(name); err == nil || !strings.Contains(err.Error(), "not available") {
				t.Errorf("%s if %s are available: error %v, want not available", name, list(available), err)
			}
		}
		for _, name := range c.there {
			if l, err := choose(name); err != nil || l.String() != name {
				t.Errorf("%s if %s are available: %v, %v", name, list(available), l, err)
			}
		}
		if l, err := choose(""); err != nil || l != c.levels[len(c.levels)-1] {
			t.Errorf("no value if %s are available: %v, %v, want the highest", list(available), l, err)
		}
	}
}

func TestSetSwitchesTheDispatchBits(t *testing.T) {
	for _, l := range Available() {
		restore := Set(l)
		if Current() != l {
			t.Errorf("Set(%s): current %s", l, Current())
		}
		restore()
	}
	defer apply(current, true)
	for l, want := range [][6]bool{
		Generic: {},
		AVX2:    {true, false, false, false, false, false},
		AVX512:  {true, true, bestVNNI, false, false, false},
		NEON:    {false, false, false, true, false, false},
		NEONDot: {false, false, false, true, true, bestI8MM},
	} {
		apply(Level(l), true)
		if got := [6]bool{Has.AVX2, Has.AVX512, Has.VNNI, Has.NEON, Has.NEONDot, Has.I8MM}; got != want {
			t.Errorf("%s: bits %v, want %v", Level(l), got, want)
		}
	}
}

// A program that uses the library runs on the best level, and can ask for the error.
func TestAnUnknownLevelIsAnError(t *testing.T) {
	if os.Getenv("L2S_TEST_CHILD") != "" {
		// The child of an emulated program may run on the machine itself, which has other levels.
		want := fmt.Sprintf(`L2S_SIMD="bogus": unknown level; available: %s`, list(available))
		if err := Err(); err == nil || err.Error() != want || Current() != best() {
			t.Errorf("found %v on %v, expected %s on %v", err, Current(), want, best())
		}
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^TestAnUnknownLevelIsAnError$")
	cmd.Env = append(os.Environ(), EnvVar+"=bogus", "L2S_TEST_CHILD=1")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.ENOEXEC) {
		t.Skip("an emulated program cannot start itself")
	}
	if err != nil || !strings.HasPrefix(string(out), "PASS") {
		t.Errorf("found %v and\n%s", err, out)
	}
}
