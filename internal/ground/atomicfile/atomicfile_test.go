package atomicfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

// holds checks the names in a folder, and with them that no temporary file is
// left.
func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

func content(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s holds %q, want %q", filepath.Base(path), got, want)
	}
}

func put(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, path string) *atomicfile.File {
	t.Helper()
	f, err := atomicfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Abort)
	return f
}

func write(t *testing.T, f io.Writer, text string) {
	t.Helper()
	if n, err := f.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("Write = %d, %v, want %d", n, err, len(text))
	}
}

func TestNewFileIsThereOnlyAfterCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	f := create(t, path)
	write(t, f, "hello world")
	if n, err := f.WriteAt([]byte("W"), 6); n != 1 || err != nil {
		t.Fatalf("WriteAt = %d, %v", n, err)
	}
	write(t, f, "!") // WriteAt does not move the end
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before Commit: %v, want no file", err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	content(t, path, "hello World!")
	holds(t, dir, "out")
}

func TestOldFileIsIntactBeforeCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	put(t, path, "old", 0o644)
	f := create(t, path)
	content(t, path, "old")
	write(t, f, "new")
	content(t, path, "old")
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	content(t, path, "new")
	f.Abort()
	content(t, path, "new")
	holds(t, dir, "out")
}

func TestAbortLeavesTheOldFileAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	put(t, path, "old", 0o644)
	f := create(t, path)
	write(t, f, "new")
	f.Abort()
	f.Abort()
	content(t, path, "old")
	holds(t, dir, "out")

	none := create(t, filepath.Join(dir, "none"))
	none.Abort()
	holds(t, dir, "out")
}

func TestNothingWorksAfterTheEnd(t *testing.T) {
	for _, end := range []string{"Commit", "Abort"} {
		t.Run(end, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			f := create(t, path)
			if end == "Commit" {
				if err := f.Commit(); err != nil {
					t.Fatal(err)
				}
			} else {
				f.Abort()
			}
			want := path + ": cannot be written: found it committed or aborted before, expected neither"
			_, werr := f.Write([]byte("x"))
			_, aerr := f.WriteAt([]byte("x"), 0)
			for name, err := range map[string]error{"Write": werr, "WriteAt": aerr, "Commit": f.Commit()} {
				if err == nil || err.Error() != want {
					t.Errorf("%s: %v, want %s", name, err, want)
				}
			}
		})
	}
}

// WriteAt at a negative offset is the failure that needs no special system.
func TestCommitFailsAfterAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	put(t, path, "old", 0o644)
	f := create(t, path)
	write(t, f, "new")
	want := path + ": cannot be written: negative offset"
	if _, err := f.WriteAt([]byte("x"), -1); err == nil || err.Error() != want {
		t.Fatalf("WriteAt: %v, want %s", err, want)
	}
	write(t, f, " and more")
	if err := f.Commit(); err == nil || err.Error() != want {
		t.Errorf("Commit: %v, want %s", err, want)
	}
	content(t, path, "old")
	holds(t, dir, "out")
}

// A folder that appears at the destination makes the rename fail.
func TestFailedRename(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	f := create(t, path)
	write(t, f, "new")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(path, "inside"), "old", 0o644)
	err := f.Commit()
	if err == nil {
		t.Fatal("Commit onto a folder succeeded")
	}
	if strings.Contains(err.Error(), ".tmp-") {
		t.Errorf("%v: names the temporary file", err)
	}
	if got, want := err.Error(), path+": cannot be written: "; !strings.HasPrefix(got, want) {
		t.Errorf("found %q, want it to start with %q", got, want)
	}
	holds(t, dir, "out")
	content(t, filepath.Join(path, "inside"), "old")
}

func TestCreateFailsAtOnce(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), "old", 0o644)
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ name, path, want string }{
		{"missing folder", dir + "/none/out", ": cannot be written: no such file or directory"},
		{"folder", dir + "/folder", ": cannot be written: found a folder, expected a file name"},
		{"folder with a slash", dir + "/folder/", ": cannot be written: found a folder, expected a file name"},
		{"missing folder with a slash", dir + "/none/", ": cannot be written: no such file or directory"},
		{"this folder", ".", ": cannot be written: found a folder, expected a file name"},
		{"file as folder", dir + "/file/out", ": cannot be written: not a directory"},
		{"empty name", "", "found an empty file name, expected a file to write"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && c.name != "folder" && c.name != "this folder" && c.name != "empty name" {
				t.Skip("the system's message is another on Windows")
			}
			f, err := atomicfile.Create(c.path)
			if err == nil {
				f.Abort()
				t.Fatal("Create succeeded")
			}
			if want := c.path + c.want; err.Error() != want {
				t.Errorf("found %q, want %q", err, want)
			}
		})
	}
	content(t, filepath.Join(dir, "file"), "old")
	holds(t, dir, "file", "folder")
	holds(t, filepath.Join(dir, "folder"))
}

func TestReadOnlyFolder(t *testing.T) {
	if os.Geteuid() <= 0 {
		t.Skip("root, and Windows, write to read-only folders: the case cannot be produced")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "out")
	_, err := atomicfile.Create(path)
	if want := path + ": cannot be written: permission denied"; err == nil || err.Error() != want {
		t.Errorf("found %v, want %s", err, want)
	}
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v is not fs.ErrPermission", err)
	}
	holds(t, dir)
}

// Renaming onto a device would remove it from the system.
func TestDeviceIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no device file on Windows")
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/null", link} {
		f, err := atomicfile.Create(path)
		if err == nil {
			f.Abort()
			t.Fatalf("Create(%q) succeeded", path)
		}
		if want := path + ": cannot be written: found a device or a pipe, expected a regular file"; err.Error() != want {
			t.Errorf("found %q, want %q", err, want)
		}
	}
	holds(t, dir, "link")
}

func TestSymbolicLinkStays(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	target := filepath.Join(other, "target")
	put(t, target, "old", 0o644)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	f := create(t, link)
	write(t, f, "new")
	content(t, target, "old")
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	content(t, target, "new")
	holds(t, dir, "link")
	holds(t, other, "target")
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info.Mode(), err)
	}
}

func TestAFileIsMadeBehindLinksThatLeadNowhere(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(other, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		filepath.Join(dir, "link"):     filepath.Join(other, "second"), // absolute
		filepath.Join(other, "second"): filepath.Join("sub", "target"), // relative
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	f := create(t, filepath.Join(dir, "link"))
	write(t, f, "new")
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	content(t, filepath.Join(other, "sub", "target"), "new")
	holds(t, dir, "link")
	holds(t, other, "second", "sub")
	holds(t, filepath.Join(other, "sub"), "target")
}

func TestALoopOfLinksIsRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("link", link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if _, err := atomicfile.Create(link); err == nil || !strings.Contains(err.Error(), link+": cannot be written: ") {
		t.Errorf("error %v, want that %s cannot be written", err, link)
	}
	holds(t, dir, "link")
}

func TestTheLongestNamesOfTheSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("n", 255))
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Skipf("no such names here: %v", err)
	}
	f := create(t, path)
	write(t, f, "new")
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	content(t, path, "new")
}

func TestPermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no permission bits on Windows")
	}
	dir := t.TempDir()
	mode := func(name string) fs.FileMode {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	replace := func(name string) {
		f := create(t, filepath.Join(dir, name))
		write(t, f, "new")
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		content(t, filepath.Join(dir, name), "new")
	}
	put(t, filepath.Join(dir, "any"), "", 0o666) // the umask decides
	replace("new")
	if got, want := mode("new"), mode("any"); got != want {
		t.Errorf("a new file has mode %v, want %v", got, want)
	}
	for _, want := range []fs.FileMode{0o600, 0o640, 0o755, 0o444} {
		name := want.String()
		put(t, filepath.Join(dir, name), "old", want)
		if err := os.Chmod(filepath.Join(dir, name), want); err != nil {
			t.Fatal(err)
		}
		replace(name)
		if got := mode(name); got != want {
			t.Errorf("mode %v became %v", want, got)
		}
	}
}

// A name in the folder of the program has no folder part.
func TestBareName(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	f := create(t, "out")
	write(t, f, "new")
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	content(t, "out", "new")
	holds(t, dir, "out")
}

// The next process that writes the same file removes the temporary files of a killed process, and
// nothing else.
func TestWhatAKilledProcessLeavesIsRemoved(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	long := strings.Repeat("n", 230)
	others := []string{".out.tmp-", ".out.tmp-12x", ".out.tmp-x12", ".out.tmp-12 ", ".out2.tmp-12", ".other.tmp-12", "out.tmp-12", ".out.tmp-1.tmp-"}
	for _, name := range append(slices.Clone(others), ".out.tmp-12", ".out.tmp-4294967295", "."+long[:200]+".tmp-7") {
		put(t, in(name), "left", 0o444)
	}
	if err := os.Mkdir(in(".out.tmp-55"), 0o777); err != nil {
		t.Fatal(err)
	}
	put(t, in("data"), "precious", 0o666)
	if err := os.Symlink("data", in(".out.tmp-56")); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	living := create(t, in("out"))
	write(t, living, "from a living writer")
	create(t, in(long)).Abort()
	f := create(t, in("out"))
	write(t, f, "new")
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	content(t, in("out"), "new")
	if err := living.Commit(); err != nil {
		t.Errorf("found that the file of a living writer is lost: %v", err)
	}
	content(t, in("out"), "from a living writer")
	content(t, in("data"), "precious")
	if !hasLocks() {
		return // no file is removed
	}
	want := append(others, ".out.tmp-55", ".out.tmp-56", "data", "out")
	slices.Sort(want)
	holds(t, dir, want...)
}

// hasLocks reports whether the system has locks that end with their process.
func hasLocks() bool {
	switch runtime.GOOS {
	case "darwin", "dragonfly", "freebsd", "linux", "netbsd", "openbsd":
		return true
	}
	return false
}

// If several goroutines write one file at the same time, none loses its data.
func TestWritersDoNotRemoveEachOthersFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	errs := make(chan error)
	const writers, rounds = 8, 60
	for range writers {
		go func() {
			var err error
			for range rounds {
				var f *atomicfile.File
				if f, err = atomicfile.Create(path); err != nil {
					break
				}
				if _, err = f.Write([]byte("text")); err != nil {
					break
				}
				if err = f.Commit(); err != nil {
					break
				}
			}
			errs <- err
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	holds(t, filepath.Dir(path), "out")
}

// hold holds path, or fails the test.
func hold(t *testing.T, path string) (release func()) {
	t.Helper()
	release, err := atomicfile.Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func TestOneRunAtATimeHoldsAPath(t *testing.T) {
	if !hasLocks() {
		t.Skip("no locks here")
	}
	dir := t.TempDir()
	path, link := filepath.Join(dir, "out"), filepath.Join(dir, "link")
	if err := os.Symlink("out", link); err != nil {
		t.Fatal(err)
	}
	release := hold(t, path)
	for _, name := range []string{path, link} {
		_, err := atomicfile.Hold(name)
		if want := name + ": found another run that works on it, expected none"; !errors.Is(err, atomicfile.ErrHeld) || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	hold(t, filepath.Join(dir, "other"))()
	release()
	hold(t, link)()
	holds(t, dir, "link")
}

// A process that was killed has left the file and no lock.
func TestTheLockOfAKilledProcessIsTaken(t *testing.T) {
	if !hasLocks() {
		t.Skip("no locks here")
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, ".out.lock"), "", 0o666)
	release := hold(t, filepath.Join(dir, "out"))
	if _, err := atomicfile.Hold(filepath.Join(dir, "out")); !errors.Is(err, atomicfile.ErrHeld) {
		t.Errorf("error %v, want that it is held", err)
	}
	release()
	holds(t, dir)
}

func TestHoldRemovesNothingOfOthers(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, ".out.lock"), "precious", 0o666)
	hold(t, filepath.Join(dir, "out"))()
	content(t, filepath.Join(dir, ".out.lock"), "precious")

	put(t, filepath.Join(dir, "data"), "", 0o666)
	if err := os.Symlink("data", filepath.Join(dir, ".linked.lock")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if release, err := atomicfile.Hold(filepath.Join(dir, "linked")); err == nil {
		release()
		if hasLocks() {
			t.Error("a link in the place of the lock was followed")
		}
	}
	holds(t, dir, ".linked.lock", ".out.lock", "data")
}

func TestHoldInAFolderThatIsNotThere(t *testing.T) {
	if !hasLocks() {
		t.Skip("no locks here")
	}
	path := filepath.Join(t.TempDir(), "none", "out")
	if _, err := atomicfile.Hold(path); err == nil || err.Error() != path+": cannot be written: no such file or directory" {
		t.Errorf("error %v", err)
	}
}

// If many try at the same time, one holds it at any moment.
func TestManyTryToHold(t *testing.T) {
	if !hasLocks() {
		t.Skip("no locks here")
	}
	path := filepath.Join(t.TempDir(), "out")
	var holding, most, held atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				release, err := atomicfile.Hold(path)
				if errors.Is(err, atomicfile.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				held.Add(1)
				if n := holding.Add(1); n > 1 {
					most.Store(n)
				}
				runtime.Gosched()
				holding.Add(-1)
				release()
			}
		})
	}
	all.Wait()
	if most.Load() > 1 || held.Load() == 0 {
		t.Errorf("found %d at once that held it, and %d in all, expected one at once", most.Load(), held.Load())
	}
	holds(t, filepath.Dir(path))
}

// Long names that differ at their ends are held apart.
func TestHoldOfLongNames(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("a", 230)
	for _, name := range []string{long + "1", long + "2"} {
		release, err := atomicfile.Hold(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
}
