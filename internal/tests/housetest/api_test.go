package housetest

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the public API to testdata/api.txt")

// line is a declaration in one line, without comments.
func line(n any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), n); err != nil {
		panic(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// receiver is the type of a method's receiver, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	return line(d.Recv.List[0].Type)
}

// api lists the exported names of a package with their types: a line each for a constant, a variable,
// a function, a method, a type, a field of a struct, and a method of an interface.
func api(pkg string, files []*ast.File) (lines []string) {
	add := func(format string, args ...any) {
		lines = append(lines, "package "+pkg+": "+fmt.Sprintf(format, args...))
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				of := receiver(d)
				if d.Name.IsExported() && (of == "" || ast.IsExported(strings.TrimPrefix(of, "*"))) {
					signature := strings.TrimPrefix(line(d.Type), "func")
					if of != "" {
						add("method (%s) %s%s", of, d.Name, signature)
					} else {
						add("func %s%s", d.Name, signature)
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.ValueSpec:
						for i, name := range s.Names {
							if !name.IsExported() {
								continue
							}
							text := fmt.Sprintf("%s %s", d.Tok, name)
							if s.Type != nil {
								text += " " + line(s.Type)
							}
							if d.Tok == token.CONST && i < len(s.Values) {
								text += " = " + line(s.Values[i])
							}
							add("%s", text)
						}
					case *ast.TypeSpec:
						if s.Name.IsExported() {
							typeLines(s, add)
						}
					}
				}
			}
		}
	}
	return lines
}

func typeLines(s *ast.TypeSpec, add func(format string, args ...any)) {
	name := s.Name.Name
	if s.TypeParams != nil {
		parameters := []string{}
		for _, f := range s.TypeParams.List {
			for _, n := range f.Names {
				parameters = append(parameters, n.Name+" "+line(f.Type))
			}
		}
		name += "[" + strings.Join(parameters, ", ") + "]"
	}
	switch x := s.Type.(type) {
	case *ast.StructType:
		add("type %s struct", name)
		for _, f := range x.Fields.List {
			tag := ""
			if f.Tag != nil {
				tag = " " + f.Tag.Value
			}
			if len(f.Names) == 0 {
				add("type %s struct, embedded %s%s", name, line(f.Type), tag)
			}
			for _, n := range f.Names {
				if n.IsExported() {
					add("type %s struct, %s %s%s", name, n, line(f.Type), tag)
				}
			}
		}
	case *ast.InterfaceType:
		add("type %s interface", name)
		for _, f := range x.Methods.List {
			if len(f.Names) == 0 {
				add("type %s interface, embedded %s", name, line(f.Type))
			}
			for _, n := range f.Names {
				add("type %s interface, %s%s", name, n, strings.TrimPrefix(line(f.Type), "func"))
			}
		}
	case *ast.SelectorExpr: // an opaque type of internal/
		add("type %s", name)
	default:
		add("type %s %s", name, line(x))
	}
}

// Who changes what programs import changes testdata/api.txt too, and sees it in the difference.
func TestThePublicAPIIsWritten(t *testing.T) {
	const golden = "testdata/api.txt"
	lines := []string{}
	for pkg, files := range public(t) {
		lines = append(lines, api(path.Join("l2s", pkg), files)...)
	}
	slices.Sort(lines)
	found := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(found), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	expected := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range lines {
		if !slices.Contains(expected, line) {
			t.Errorf("%s: found no line %q, which the code has", golden, line)
		}
	}
	for _, line := range expected {
		if !slices.Contains(lines, line) {
			t.Errorf("%s: found the line %q, which the code does not have", golden, line)
		}
	}
	if t.Failed() {
		t.Log("go test ./internal/tests/housetest -run PublicAPI -update writes the file. A change of an earlier line is one for CHANGELOG.md.")
	}
	if len(lines) < 200 {
		t.Errorf("found %d lines, expected those of nine packages", len(lines))
	}
}
