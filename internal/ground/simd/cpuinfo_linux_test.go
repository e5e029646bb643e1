//go:build (amd64 || arm64) && !purego

package simd

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The level agrees with the kernel of the system. If detection failed, the library would be slower
// and no other test would fail.
func TestTheLevelIsThatOfTheCPU(t *testing.T) {
	if os.Getenv("L2S_BEST") != "" {
		t.Skip("L2S_BEST names the expected level: the CPU is emulated, or its assembly left out")
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip(err)
	}
	// "flags" on amd64, "Features" on arm64.
	_, flags, found := strings.Cut(string(info), map[string]string{"amd64": "\nflags", "arm64": "\nFeatures"}[runtime.GOARCH])
	if !found {
		t.Skip("/proc/cpuinfo has no flags")
	}
	flags, _, _ = strings.Cut(flags, "\n")
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(strings.Fields(flags), name) })
	}
	want, vnni, i8mm := Generic, false, false
	if has("avx2", "fma", "f16c", "bmi1", "bmi2") {
		want = AVX2
		if has("avx512f", "avx512bw", "avx512dq", "avx512vl") {
			want, vnni = AVX512, has("avx512_vnni")
		}
	}
	if runtime.GOARCH == "arm64" {
		want = NEON
		if has("asimddp") {
			want, i8mm = NEONDot, has("i8mm")
		}
	}
	if best() != want || bestVNNI != vnni || bestI8MM != i8mm {
		t.Errorf("level %s, vnni %v, i8mm %v; the flags of /proc/cpuinfo give %s, %v, %v", best(), bestVNNI, bestI8MM, want, vnni, i8mm)
	}
}
