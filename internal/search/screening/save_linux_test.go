package screening_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A limit on the size of files replaces a full disk: the write itself fails, after its first bytes.
// The limit is for the whole process, so the test runs in a separate process: package testing
// writes files too.
func TestSaveThatRunsOutOfSpaceLeavesTheOldFile(t *testing.T) {
	const inChild = "L2S_TEST_FILE_SIZE_LIMIT"
	if os.Getenv(inChild) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inChild+"=1")
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.ENOEXEC) {
			t.Skip("an emulated program cannot start itself")
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "model.l2s")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ) // or it would end the process
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err := smallModel(t).Save(path)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one of the size that names the file", err)
	}
	if names := list(t, dir); !slices.Equal(names, []string{"model.l2s"}) {
		t.Errorf("the folder holds %v", names)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("the old file: %q, %v", got, err)
	}
}
