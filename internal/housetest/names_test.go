package housetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// exported returns the exported names of a file: package-level names, and methods of exported
// types. The names of a type under another name (type A = other.B) count, too: other programs can
// use them.
func exported(file *ast.File) (names []string) {
	add := func(id *ast.Ident, of string) {
		if id.IsExported() {
			names = append(names, of+id.Name)
		}
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name, "")
				continue
			}
			t := d.Recv.List[0].Type
			if star, ok := t.(*ast.StarExpr); ok {
				t = star.X
			}
			if id, ok := t.(*ast.Ident); ok && id.IsExported() {
				add(d.Name, id.Name+".")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name, "")
					if s.Assign.IsValid() && s.Name.IsExported() {
						for _, m := range methodsOf(file, s.Type) {
							names = append(names, s.Name.Name+"."+m)
						}
					}
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add(id, "")
					}
				}
			}
		}
	}
	return names
}

// methodsOf are the exported methods of a type of another package of the module.
func methodsOf(file *ast.File, t ast.Expr) (names []string) {
	of, ok := t.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	for _, imported := range file.Imports {
		folder, ok := strings.CutPrefix(strings.Trim(imported.Path.Value, `"`), module)
		if !ok || path.Base(folder) != of.X.(*ast.Ident).Name {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(root, folder, "*.go"))
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			other, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				continue
			}
			for _, x := range exported(other) {
				if m, ok := strings.CutPrefix(x, of.Sel.Name+"."); ok {
					names = append(names, m)
				}
			}
		}
	}
	return names
}

// mostNames are the exported names of each package that other programs import. A name that is
// not for them belongs to internal/. A new one is a promise: raise the number with it.
var mostNames = map[string]int{
	"beam": 7, "bitset": 16, "head": 21, "kernels": 33, "learn": 15, "preview": 23, "sample": 26,
	"screen": 50, "softmax": 28, "train": 16,
}

func TestExportedNames(t *testing.T) {
	found := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, name)
		if entry.IsDir() {
			inside := []string{"benchmarks", "bin", "cmd", "examples", "fuzz", "gen", "kernels/asm", "llamacpp"} // and modules of their own
			if base := entry.Name(); name != root && (base == "internal" || base == "testdata" || base[0] == '.' || slices.Contains(inside, filepath.ToSlash(folder))) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(folder))
		if found[pkg] == nil {
			found[pkg] = map[string]bool{}
		}
		for _, x := range exported(file) {
			found[pkg][x] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for pkg, names := range found {
		total += len(names)
		if most, ok := mostNames[pkg]; !ok || len(names) != most {
			t.Errorf("%s: found %d exported names, expected %d: mostNames holds the count", pkg, len(names), most)
		}
	}
	if len(found) != len(mostNames) {
		t.Errorf("found %d packages, expected %d", len(found), len(mostNames))
	}
	t.Logf("%d exported names", total)
}
