package simd

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestForcedLevelIsTheLevel is what a CI leg relies on: where L2S_SIMD is
// set, the tests run on that level; where L2S_BEST is set, that is the highest
// level that was found.
func TestForcedLevelIsTheLevel(t *testing.T) {
	if want := os.Getenv("L2S_BEST"); want != "" && best.String() != want {
		t.Errorf("highest level %s, want %s", best, want)
	}
	want := os.Getenv(EnvVar)
	if want == "" {
		want = best.String()
	}
	if got := Current().String(); got != want {
		t.Errorf("level %s, want %s", got, want)
	}
	t.Logf("level %s, vnni %v", Current(), HasVNNI)
}

func TestChoose(t *testing.T) {
	if l, err := choose(""); err != nil || l != best {
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
	old := best
	defer func() { best = old }()
	best = Generic
	if _, err := choose("avx512"); err == nil || !strings.Contains(err.Error(), "not available") {
		t.Errorf("avx512 on a generic machine: error %v, want not available", err)
	}
}

func TestSetSwitchesTheDispatchBits(t *testing.T) {
	for _, l := range Available() {
		restore := Set(l)
		if Current() != l || HasAVX2 != (l >= AVX2) || HasAVX512 != (l >= AVX512) {
			t.Errorf("Set(%s): current %s, avx2 %v, avx512 %v", l, Current(), HasAVX2, HasAVX512)
		}
		restore()
	}
}

// A program that uses the library ends at its start, with a panic.
func TestUnknownLevelIsAPanicAtStart(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^$")
	cmd.Env = append(os.Environ(), EnvVar+"=bogus")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.ENOEXEC) {
		t.Skip("an emulated program cannot start itself")
	}
	if want := `panic: kernels: L2S_SIMD="bogus": unknown level; available: generic`; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("found %v and\n%s\nexpected %s", err, out, want)
	}
}
