// Package housetest holds the tests of the repository as a whole: the floors of ARCHITECTURE.md
// hold, and the files that the documents name exist.
package housetest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../../.."
	module = "github.com/learning-to-screen/l2s"
	door   = "l2s" // the package at the root
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// imports are the packages of the module that each package of the repository imports, without test
// files, for all build tags. Packages are known by their folders.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && name != root && (base == "testdata" || base == "bin" || base[0] == '.') {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		if folder = filepath.ToSlash(folder); folder == "." {
			folder = door
		}
		if _, ok := found[folder]; !ok {
			found[folder] = nil // even without imports
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			of, ok := strings.CutPrefix(imported, module+"/")
			if imported == module {
				of, ok = door, true
			}
			if ok && !slices.Contains(found[folder], of) {
				found[folder] = append(found[folder], of)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// plan is the table of floors: packages by name. A name that ends in /... means all packages below
// a folder.
type plan map[string]int

var row = regexp.MustCompile(`^\| (\d+) \| ([^|]*) \|`)

func parsePlan(text string) (plan, error) {
	p := plan{}
	for line := range strings.Lines(text) {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		floor, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		for name := range strings.SplitSeq(m[2], ", ") {
			name = strings.Trim(name, "`")
			if _, twice := p[name]; twice {
				return nil, fmt.Errorf("%s: found two floors, expected one", name)
			}
			p[name] = floor
		}
	}
	return p, nil
}

// name returns the entry of the plan for a package, "" without one.
func (p plan) name(pkg string) string {
	if _, ok := p[pkg]; ok {
		return pkg
	}
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if _, ok := p[dir+"/..."]; ok {
			return dir + "/..."
		}
	}
	return ""
}

// faults lists the packages and imports that break the plan.
func (p plan) faults(imports map[string][]string) (faults []string) {
	used := map[string]bool{}
	for pkg, list := range imports {
		from := p.name(pkg)
		if used[from] = true; from == "" {
			faults = append(faults, pkg+": found no floor, expected one")
			continue
		}
		for _, to := range list {
			// Packages of one entry have no order among them.
			if below := p.name(to); below != "" && below != from && p[below] >= p[from] {
				faults = append(faults, fmt.Sprintf("%s on floor %d: found an import of %s on floor %d, expected a lower one", pkg, p[from], to, p[below]))
			}
		}
	}
	for name := range p {
		if !used[name] {
			faults = append(faults, name+": found no such package, expected one on its floor")
		}
	}
	slices.Sort(faults)
	return faults
}

func TestImportsGoDownwards(t *testing.T) {
	p, err := parsePlan(read(t, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := imports(t)
	for pkg := range all {
		if strings.HasPrefix(pkg, "gen/") { // it imports nothing of the module
			if list := slices.DeleteFunc(all[pkg], func(to string) bool { return strings.HasPrefix(to, "gen/") }); len(list) > 0 {
				t.Errorf("%s: found imports of %v, expected none", pkg, list)
			}
			delete(all, pkg)
		}
	}
	for _, fault := range p.faults(all) {
		t.Error("ARCHITECTURE.md: " + fault)
	}
}

// documents are the texts about the repository.
func documents(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && name != root && (base == "testdata" || base == "bin" || base[0] == '.') {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notWord = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchor is the name of a heading in a link, as GitHub makes it.
func anchor(heading string) string {
	return strings.ReplaceAll(notWord.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	links := 0
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			to, part, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			links++
			target := path.Join(path.Dir(name), to)
			if to == "" {
				target = name
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: found a link to %s, which does not exist", name, m[1])
				continue
			}
			if part == "" {
				continue
			}
			anchors := heading.FindAllStringSubmatch(read(t, target), -1)
			if !slices.ContainsFunc(anchors, func(h []string) bool { return anchor(h[1]) == part }) {
				t.Errorf("%s: found a link to %s, which has no such heading", name, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("found no links in the documents")
	}
}

var (
	fenced = regexp.MustCompile("(?s)```.*?```")
	quoted = regexp.MustCompile("`([^`\n]+)`")
	// A path of a source file, a document or a folder of the repository.
	source = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*\.(go|md|s|yml|yaml)$|^(internal|cmd|kernels|train|gen|benchmarks|fuzz|screen|softmax|docs|scripts)(/[A-Za-z0-9_.-]+)+$`)
)

// A path in a document names a file: from the root, or from the folder of the document.
func TestFilesThatDocumentsNameExist(t *testing.T) {
	named := 0
	for _, name := range documents(t) {
		if name == "CHANGELOG.md" { // which describes the past
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, name), ""), -1) {
			if !source.MatchString(m[1]) {
				continue
			}
			named++
			file := strings.TrimSuffix(m[1], "/...")
			_, fromRoot := os.Stat(filepath.Join(root, file))
			_, beside := os.Stat(filepath.Join(root, path.Dir(name), file))
			if fromRoot != nil && beside != nil {
				t.Errorf("%s: found `%s`, which does not exist", name, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("found %d names of files in the documents, expected at least the names in ARCHITECTURE.md", named)
	}
}

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// A test that a document names exists.
func TestTestsThatDocumentsNameExist(t *testing.T) {
	exist := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			exist[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, name := range documents(t) {
		if name == "CHANGELOG.md" { // which describes the past
			continue
		}
		for _, test := range testName.FindAllString(read(t, name), -1) {
			if named++; !exist[test] {
				t.Errorf("%s: found the name %s, expected a test, fuzz target or benchmark", name, test)
			}
		}
	}
	if named == 0 {
		t.Error("found no names of tests in the documents")
	}
}
