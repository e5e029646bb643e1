package housetest

import (
	"archive/zip"
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// most is the bytes of the module's zip file, which every program that imports a package downloads.
// Pictures and the results of measurements belong to benchmarks, a module of its own.
const most = 1_560_000

// files are the files of the repository: those that git knows, or, without git, all.
func files(t *testing.T) (names []string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		if list, err := exec.Command("git", "-C", root, "ls-files", "-z").Output(); err == nil {
			return strings.Split(strings.TrimRight(string(list), "\x00"), "\x00")
		}
	}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if rel = filepath.ToSlash(rel); entry.IsDir() && (rel == ".git" || rel == "bin") {
			return fs.SkipDir
		}
		if !entry.IsDir() {
			names = append(names, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// ofTheModule are the files that a proxy packs: regular ones, without modules below the root.
func ofTheModule(t *testing.T) (names []string) {
	t.Helper()
	all := files(t)
	modules := map[string]bool{}
	for _, name := range all {
		if dir, base := path.Split(name); base == "go.mod" && dir != "" {
			modules[strings.TrimSuffix(dir, "/")] = true
		}
	}
	if len(modules) < 4 {
		t.Errorf("found the modules %v below the root, expected benchmarks, examples, gen and llamacpp", modules)
	}
	for _, name := range all {
		inside := false
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			inside = inside || modules[dir]
		}
		// A file that git knows may be deleted.
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() && !inside {
			names = append(names, name)
		}
	}
	return names
}

// counter counts the bytes that are written.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func TestImportersDownloadLittle(t *testing.T) {
	var size counter
	var headers []*zip.FileHeader
	z := zip.NewWriter(&size) // as the go command writes it
	for _, name := range ofTheModule(t) {
		header := &zip.FileHeader{Name: module + "@v0.0.0/" + name, Method: zip.Deflate}
		headers = append(headers, header)
		w, err := z.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if size < 500_000 {
		t.Errorf("found %d bytes in %d files, expected the whole module", size, len(headers))
	}
	if size > most {
		slices.SortFunc(headers, func(a, b *zip.FileHeader) int { return cmp.Compare(b.CompressedSize64, a.CompressedSize64) })
		list := ""
		for _, header := range headers[:10] {
			list += fmt.Sprintf("\n%8d %s", header.CompressedSize64, header.Name)
		}
		t.Errorf("found %d bytes in the module's zip file, expected at most %d. The largest, compressed:%s", size, most, list)
	}
	t.Logf("%d bytes in %d files", size, len(headers))
}

// A program that imports a package needs one other module: cpuid. Only tests import a further one.
func TestImportersNeedOneOtherModule(t *testing.T) {
	sources := 0
	for _, name := range ofTheModule(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		sources++
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(imported, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(imported+"/", module+"/") && imported != "github.com/klauspost/cpuid/v2" {
				t.Errorf("%s: found an import of %s, expected the standard library, cpuid or a package of the module", name, imported)
			}
		}
	}
	if sources < 100 {
		t.Errorf("found %d source files, expected at least 100", sources)
	}
}

// A program that a build left in a folder is no part of the repository, whose history keeps all files.
func TestNoProgramsAreKept(t *testing.T) {
	for _, name := range files(t) {
		f, err := os.Open(filepath.Join(root, name))
		if err != nil { // a file that git knows may be deleted
			continue
		}
		var head [4]byte
		n, _ := f.Read(head[:])
		f.Close()
		for of, magic := range map[string]string{"Linux": "\x7fELF", "macOS": "\xcf\xfa\xed\xfe", "Windows": "MZ\x90\x00"} {
			if string(head[:n]) == magic {
				t.Errorf("%s: found a program for %s, expected none", name, of)
			}
		}
	}
}
