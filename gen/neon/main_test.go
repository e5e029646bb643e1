package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
)

// run returns the output of a command.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "GOARCH=arm64")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// goWords returns the words of each function, as Go's assembler writes them.
func goWords(t *testing.T, file *arm64.File) map[string][]string {
	source, object := filepath.Join(t.TempDir(), "a.s"), filepath.Join(t.TempDir(), "a.o")
	if err := os.WriteFile(source, []byte(file.Assembly(generated)), 0o644); err != nil {
		t.Fatal(err)
	}
	include := filepath.Join(strings.TrimSpace(run(t, "go", "env", "GOROOT")), "pkg", "include")
	run(t, "go", "tool", "asm", "-p", "asm", "-I", include, "-o", object, source)
	words := map[string][]string{}
	function := ""
	for _, l := range strings.Split(run(t, "go", "tool", "objdump", object), "\n") {
		if name, ok := strings.CutPrefix(l, "TEXT asm."); ok {
			function, _, _ = strings.Cut(name, "(")
			continue
		}
		if fields := strings.Fields(l); len(fields) > 3 {
			words[function] = append(words[function], fields[2])
		}
	}
	return words
}

// gnuCode returns the words of a function and its instructions, as GNU's
// assembler writes and its disassembler reads them.
func gnuCode(t *testing.T, f *arm64.Func) (words, instructions []string) {
	source, object := filepath.Join(t.TempDir(), "a.s"), filepath.Join(t.TempDir(), "a.o")
	if err := os.WriteFile(source, []byte(f.GNU()), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "aarch64-linux-gnu-as", "-o", object, source)
	line := regexp.MustCompile(`(?m)^ +[0-9a-f]+:\t([0-9a-f]{8}) \t(.*)$`)
	for _, m := range line.FindAllStringSubmatch(run(t, "aarch64-linux-gnu-objdump", "-d", object), -1) {
		words, instructions = append(words, m[1]), append(instructions, m[2])
	}
	return words, instructions
}

// Every instruction of every function, in Go's syntax or as a number, equals the word that GNU's
// assembler makes of ARM's notation. GNU's assembler gets the extensions of the function's level
// and no others.
func TestEveryWordIsThatOfGNUsAssembler(t *testing.T) {
	for _, tool := range []string{"aarch64-linux-gnu-as", "aarch64-linux-gnu-objdump"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing: scripts/qemu --install, or install Debian's binutils-aarch64-linux-gnu", tool)
		}
	}
	for name, file := range operations() {
		t.Run(name, func(t *testing.T) {
			words := goWords(t, file)
			for _, f := range file.Funcs {
				got := words[f.Name]
				want, instructions := gnuCode(t, f)
				// Go's assembler adds zeros after the end.
				for len(got) > len(want) && got[len(got)-1] == "00000000" {
					got = got[:len(got)-1]
				}
				if len(got) != len(want) || len(want) == 0 {
					t.Errorf("%s: %d words, want %d", f.Name, len(got), len(want))
				}
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("%s, word %d: %s, want %s, %s", f.Name, i, got[i], want[i], instructions[i])
					}
				}
			}
		})
	}
}

// An instruction of an extension does not get into functions that do without.
func TestAnExtensionIsRefusedOnTheLevelWithout(t *testing.T) {
	file := &arm64.File{}
	emit := func(l arm64.Level) (refused string) {
		defer func() {
			if r := recover(); r != nil {
				refused = fmt.Sprint(r)
			}
		}()
		f := file.Func(l, "F", "func()", "")
		f.I("sdot %v.4s, %v.16b, %v.16b", f.V(), f.V(), f.V())
		return ""
	}
	if r := emit(arm64.NEON); !strings.Contains(r, "needs ASIMDDP") {
		t.Errorf("sdot on NEON: found %q, expected that it needs ASIMDDP", r)
	}
	if r := emit(arm64.NEONDot); r != "" {
		t.Errorf("sdot on NEONDOT: %s", r)
	}
	if f := file.Func(arm64.NEONDot, "G", "func()", ""); f.Level.March == arm64.NEON.March {
		t.Error("GNU's assembler is told the same of both levels")
	}
}

// A file is the same each time, so that check-generate can compare.
func TestGenerationIsRepeatable(t *testing.T) {
	first, second := operations(), operations()
	for name := range first {
		if first[name].Assembly(generated) != second[name].Assembly(generated) {
			t.Errorf("%s: other assembly the second time", name)
		}
	}
	if slices.Contains([]int{len(first), len(second)}, 0) {
		t.Error("no operations")
	}
}
