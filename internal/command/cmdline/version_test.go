package cmdline

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// The build information in a program gives its version.
func TestBuildVersion(t *testing.T) {
	const module = "github.com/learning-to-screen/l2s"
	const commit = "8e7121e0aa0d9dc1a7c8ad9a3ef58ef0a1c8c1d2"
	for _, c := range []struct {
		name, info        string // as go version -m prints it
		version, revision string
	}{
		{"go build at a tag", "mod\t" + module + "\tv0.1.0\t\nbuild\tvcs=git\nbuild\tvcs.revision=" + commit + "\nbuild\tvcs.modified=false\n", "v0.1.0", commit},
		{"go install MODULE@v0.1.0", "mod\t" + module + "\tv0.1.0\th1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n", "v0.1.0", ""},
		{"go build after a tag", "mod\t" + module + "\tv0.1.1-0.20261121192200-8e7121e0aa0d\t\nbuild\tvcs.revision=" + commit + "\n", "v0.1.1-0.20261121192200-8e7121e0aa0d", commit},
		{"go build of edited files", "mod\t" + module + "\tv0.1.0+dirty\t\nbuild\tvcs.revision=" + commit + "\nbuild\tvcs.modified=true\n", "v0.1.0+dirty", commit},
		{"go run", "mod\t" + module + "\t(devel)\t\n", release + "+devel", ""},
		{"a build without a version", "", release + "+devel", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			info, err := debug.ParseBuildInfo("go\tgo1.25\npath\t" + module + "/cmd/l2s\n" + c.info)
			if err != nil {
				t.Fatal(err)
			}
			if version, revision := buildVersion(info); version != c.version || revision != c.revision {
				t.Errorf("found version %q and revision %q, expected %q and %q", version, revision, c.version, c.revision)
			}
		})
	}
	t.Run("no build information", func(t *testing.T) {
		if version, revision := buildVersion(nil); version != release+"+devel" || revision != "" {
			t.Errorf("found version %q and revision %q, expected %s+devel and none", version, revision, release)
		}
	})
}

// The version of a build without a tag begins with the newest version in CHANGELOG.md.
func TestReleaseIsThatOfTheChanges(t *testing.T) {
	text, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## v")
	version, _, ok := strings.Cut(rest, ", ")
	if "v"+version != release || !ok {
		t.Errorf("found v%.20s first in CHANGELOG.md, expected %s and its date", version, release)
	}
}
