package housetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public are the packages that other programs import, with their files.
func public(t *testing.T) map[string][]*ast.File {
	t.Helper()
	found := map[string][]*ast.File{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, name)
		if entry.IsDir() {
			inside := []string{"benchmarks", "bin", "capi", "cmd", "examples", "fuzz", "gen", "kernels/asm", "llamacpp", "outside"} // and modules of their own
			if base := entry.Name(); name != root && (base == "internal" || base == "testdata" || base[0] == '.' || slices.Contains(inside, filepath.ToSlash(folder))) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		pkg := filepath.ToSlash(filepath.Dir(folder))
		found[pkg] = append(found[pkg], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range []string{".", "beam", "bitset", "kernels", "learn", "preview", "sample", "screen", "train"} {
		if len(found[pkg]) == 0 {
			t.Errorf("found no files of %s", pkg)
		}
	}
	return found
}

// insides are the names under which a file imports packages below internal/.
func insides(file *ast.File) (names []string) {
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if !strings.Contains(path+"/", "/internal/") {
			continue
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names = append(names, name)
	}
	return names
}

// inside returns the types of packages below internal/ that an expression names.
func inside(file *ast.File, e ast.Node) (types []string) {
	hidden := insides(file)
	ast.Inspect(e, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && slices.Contains(hidden, id.Name) {
				types = append(types, id.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return types
}

// fields visits the exported fields of a struct, and the parameters and results of functions.
func fields(list *ast.FieldList, all bool, visit func(e ast.Expr)) {
	if list == nil {
		return
	}
	for _, f := range list.List {
		if all || len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			visit(f.Type)
		}
	}
}

// Whatever a program can name has its page in go doc: no exported type is another name for one of
// internal/, and no exported field, parameter or result has a type of internal/.
func TestNothingPublicIsHidden(t *testing.T) {
	types := 0
	for pkg, files := range public(t) {
		for _, file := range files {
			refuse := func(what string, e ast.Node) {
				for _, name := range inside(file, e) {
					t.Errorf("%s: %s: found the type %s of internal/, expected one that programs can see", pkg, what, name)
				}
			}
			for _, decl := range file.Decls {
				switch d := decl.(type) {
				case *ast.FuncDecl:
					exported := d.Name.IsExported()
					if d.Recv != nil {
						of := d.Recv.List[0].Type
						if star, ok := of.(*ast.StarExpr); ok {
							of = star.X
						}
						id, ok := of.(*ast.Ident)
						exported = exported && ok && id.IsExported()
					}
					if exported {
						fields(d.Type.Params, true, func(e ast.Expr) { refuse(d.Name.Name, e) })
						fields(d.Type.Results, true, func(e ast.Expr) { refuse(d.Name.Name, e) })
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						s, ok := spec.(*ast.TypeSpec)
						if !ok || !s.Name.IsExported() {
							continue
						}
						types++
						switch x := s.Type.(type) {
						case *ast.StructType:
							fields(x.Fields, false, func(e ast.Expr) { refuse(s.Name.Name, e) })
						case *ast.SelectorExpr: // the same memory under another name, without its methods and fields
							if s.Assign.IsValid() || pkg != "." {
								refuse(s.Name.Name, x)
							}
						default:
							refuse(s.Name.Name, x)
						}
					}
				}
			}
		}
	}
	if types < 40 {
		t.Errorf("found %d exported types, expected those of nine packages", types)
	}
}
