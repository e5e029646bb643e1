package cmdline

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
)

// Version tells what a command was built from and what it runs on. It is the JSON of the verb version.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, if the build knows it
	Go       string `json:"go"`
	Platform string `json:"platform"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	Level    string `json:"level"`
	VNNI     bool   `json:"vnni"` // AVX-512 VNNI, not part of the level
	I8MM     bool   `json:"i8mm"` // matrix products of arm64, not part of the level
	// Levels are the levels that this machine and build can run, lowest first.
	Levels []string `json:"levels"`
}

// VersionOf returns the version of the running program.
func VersionOf() Version {
	info, _ := debug.ReadBuildInfo()
	version, revision := buildVersion(info)
	r := Version{
		Version: version, Revision: revision, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		CPU: CPU(), CPUs: runtime.NumCPU(), Level: kernels.Level(), VNNI: simd.Has.VNNI, I8MM: simd.Has.I8MM,
	}
	for _, l := range simd.Available() {
		r.Levels = append(r.Levels, l.String())
	}
	return r
}

// String returns it as a table.
func (r Version) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "l2s      %s\n", r.Version)
	if r.Revision != "" {
		fmt.Fprintf(&b, "source   %s\n", r.Revision)
	}
	fmt.Fprintf(&b, "go       %s %s\n", r.Go, r.Platform)
	fmt.Fprintf(&b, "cpu      %s, %d CPUs\n", r.CPU, r.CPUs)
	level := r.Level
	switch {
	case r.VNNI:
		level += " with VNNI"
	case r.I8MM:
		level += " with i8mm"
	}
	fmt.Fprintf(&b, "level    %s (of %s)\n", level, strings.Join(r.Levels, ", "))
	return b.String()
}

// release is the newest version in CHANGELOG.md; the version of a build without a tag begins with
// it.
const release = "v0.9.0"

// buildVersion returns the version of the program and the revision of its source, as far as the go
// command has written them into it. The version is the tag, if the source has one, and
// release+devel otherwise.
func buildVersion(info *debug.BuildInfo) (version, revision string) {
	const devel = release + "+devel"
	if info == nil {
		return devel, ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	if info.Main.Version == "(devel)" {
		return devel, revision
	}
	return cmp.Or(info.Main.Version, devel), revision
}

// CPU returns the name that the CPU gives itself.
func CPU() string { return cmp.Or(strings.TrimSpace(cpuid.CPU.BrandName), "unknown") }
