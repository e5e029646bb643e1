// Package arm64 writes assembly for arm64: its input is instructions in ARM's notation, its output
// text for Go's assembler.
//
// Go's assembler lacks much of Advanced SIMD. An instruction that it has is
// written in its syntax, any other as its encoding with the instruction in a
// comment. The tests of gen/neon assemble every function twice, from Go's text by
// Go's assembler and from ARM's text by GNU's, which knows all of it, and compare the
// words.
package arm64

import (
	"fmt"
	"go/ast"
	"go/parser"
	"strings"
)

// X is a general register: the verb %x writes it as one of 64 bits, %u as one of 32.
type X uint8

// Format implements fmt.Formatter.
func (x X) Format(s fmt.State, verb rune) {
	name, ok := map[rune]string{'x': "x", 'u': "w"}[verb]
	if !ok {
		panic(fmt.Sprintf("arm64: general register written with %%%c", verb))
	}
	fmt.Fprintf(s, "%s%d", name, uint8(x))
}

// V is a vector register: the verb %v writes it as a vector, to be followed by
// its arrangement, %q, %d, %s and %h as a scalar of 128, 64, 32 and 16 bits.
type V uint8

// Format implements fmt.Formatter.
func (v V) Format(s fmt.State, verb rune) {
	if !strings.ContainsRune("vqdsh", verb) {
		panic(fmt.Sprintf("arm64: vector register written with %%%c", verb))
	}
	fmt.Fprintf(s, "%c%d", verb, uint8(v))
}

// Level is the set of extensions that a function is written for.
type Level struct {
	Suffix   string // of the function's name
	March    string // as GNU's assembler names it
	Requires string // the extensions, as the function's comment states them
}

// The levels of the kernels.
var (
	NEON    = Level{"NEON", "armv8-a", "ASIMD"}
	NEONDot = Level{"NEONDOT", "armv8.2-a+dotprod", "ASIMD, ASIMDDP"}
	// NEONI8MM has products of matrices of bytes in addition.
	NEONI8MM = Level{"NEONI8MM", "armv8.2-a+dotprod+i8mm", "ASIMD, ASIMDDP, I8MM"}
)

// File is a file of functions.
type File struct{ Funcs []*Func }

// Func is a function of assembly.
type Func struct {
	Name      string
	Level     Level
	signature string
	doc       string
	offsets   map[string]int // of parameters and results
	size      int            // of both
	lines     []line
	generals  []X
	vectors   []V
}

// line is one line of a function in both notations; asGNU is empty for a comment.
type line struct{ asGo, asGNU string }

// Func starts a form of the operation name, whose contract is the doc, with a signature of one name
// a parameter, as in "func(dst *float32, n int) int".
func (f *File) Func(l Level, name, signature, doc string) *Func {
	fn := &Func{Name: strings.ToLower(name[:1]) + name[1:] + l.Suffix, Level: l, signature: signature, doc: doc, offsets: map[string]int{}}
	fn.layout()
	// Not used: the platform's register, the assembler's, the goroutine's, the frame pointer, the
	// link register and the stack pointer.
	for x := X(25); x >= 19; x-- {
		fn.generals = append(fn.generals, x)
	}
	for x := X(17); x < 18; x-- {
		fn.generals = append(fn.generals, x)
	}
	for v := V(31); v < 32; v-- {
		fn.vectors = append(fn.vectors, v)
	}
	f.Funcs = append(f.Funcs, fn)
	return fn
}

// layout computes where the parameters and results are: Go's stack-based calling
// convention.
func (f *Func) layout() {
	e, err := parser.ParseExpr(f.signature)
	if err != nil {
		panic(fmt.Sprintf("arm64: %s: %v", f.signature, err))
	}
	at := 0
	align := func(n int) { at = (at + n - 1) &^ (n - 1) }
	place := func(fields *ast.FieldList, unnamed string) {
		if fields == nil {
			return
		}
		for _, field := range fields.List {
			size := 8
			if id, ok := field.Type.(*ast.Ident); ok && strings.HasSuffix(id.Name, "32") {
				size = 4
			}
			names := field.Names
			if names == nil {
				names = []*ast.Ident{ast.NewIdent(unnamed)}
			}
			for _, name := range names {
				align(size)
				f.offsets[name.Name] = at
				at += size
			}
		}
	}
	t := e.(*ast.FuncType)
	place(t.Params, "")
	align(8)
	place(t.Results, "ret")
	f.size = at
}

// X returns a general register that is not in use.
func (f *Func) X() X {
	if len(f.generals) == 0 {
		panic("arm64: " + f.Name + ": no general register is left")
	}
	x := f.generals[len(f.generals)-1]
	f.generals = f.generals[:len(f.generals)-1]
	return x
}

// Xs returns n general registers.
func (f *Func) Xs(n int) []X {
	x := make([]X, n)
	for i := range x {
		x[i] = f.X()
	}
	return x
}

// V returns a vector register that is not in use.
func (f *Func) V() V {
	if len(f.vectors) == 0 {
		panic("arm64: " + f.Name + ": no vector register is left")
	}
	v := f.vectors[len(f.vectors)-1]
	f.vectors = f.vectors[:len(f.vectors)-1]
	return v
}

// Vs returns n vector registers.
func (f *Func) Vs(n int) []V {
	v := make([]V, n)
	for i := range v {
		v[i] = f.V()
	}
	return v
}

// Zeros returns n vector registers and clears them.
func (f *Func) Zeros(n int) []V {
	v := f.Vs(n)
	f.Clear(v...)
	return v
}

// Clear clears vector registers.
func (f *Func) Clear(v ...V) {
	for _, v := range v {
		f.I("movi %v.16b, #0", v)
	}
}

// Free gives vector registers back.
func (f *Func) Free(v ...V) {
	for i := len(v) - 1; i >= 0; i-- {
		f.vectors = append(f.vectors, v[i])
	}
}

// FreeX gives general registers back.
func (f *Func) FreeX(x ...X) {
	for i := len(x) - 1; i >= 0; i-- {
		f.generals = append(f.generals, x[i])
	}
}

// I adds an instruction in ARM's notation. Branches name labels.
func (f *Func) I(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l, err := translate(text, f.Level)
	if err != nil {
		panic(fmt.Sprintf("arm64: %s: %s: %v", f.Name, text, err))
	}
	if label, ok := target(text); ok {
		text = strings.TrimSuffix(text, label) + f.label(label)
	}
	f.lines = append(f.lines, line{"\t" + l, "\t" + text})
}

// Label starts a block that branches go to.
func (f *Func) Label(format string, args ...any) {
	name := fmt.Sprintf(format, args...)
	f.lines = append(f.lines, line{"\n" + name + ":", f.label(name) + ":"})
}

// label is the label's name in GNU's file, where functions share one space.
func (f *Func) label(name string) string { return "." + f.Name + "." + name }

// Comment adds a comment.
func (f *Func) Comment(text string) {
	f.lines = append(f.lines, line{asGo: "\n\t// " + text})
}

// offset is where a parameter or a result is.
func (f *Func) offset(name string) int {
	at, ok := f.offsets[name]
	if !ok {
		panic("arm64: " + f.Name + " has no parameter or result " + name)
	}
	return at
}

// move moves between a register and a parameter or result: 8 bytes above the
// stack pointer, where the link register could be saved, they begin.
func (f *Func) move(mnemonic, register, goMove, goRegister, name string) {
	at := f.offset(name)
	frame := fmt.Sprintf("%s+%d(FP)", name, at)
	from, to := frame, goRegister
	if mnemonic == "str" {
		from, to = goRegister, frame
	}
	f.lines = append(f.lines, line{
		fmt.Sprintf("\t%s %s, %s", goMove, from, to),
		fmt.Sprintf("\t%s %s, [sp, #%d]", mnemonic, register, at+8),
	})
}

// Load loads a parameter of 8 bytes.
func (f *Func) Load(name string, to X) {
	f.move("ldr", fmt.Sprintf("%x", to), "MOVD", fmt.Sprintf("R%d", uint8(to)), name)
}

// Param returns a new register with a parameter of 8 bytes.
func (f *Func) Param(name string) X {
	x := f.X()
	f.Load(name, x)
	return x
}

// ParamFloat32 returns a new register with a float32 parameter in every lane.
func (f *Func) ParamFloat32(name string) V {
	v := f.V()
	f.move("ldr", fmt.Sprintf("%s", v), "FMOVS", fmt.Sprintf("F%d", uint8(v)), name)
	f.I("dup %v.4s, %v.s[0]", v, v)
	return v
}

// ParamFloat64 returns a new register with a float64 parameter in both lanes.
func (f *Func) ParamFloat64(name string) V {
	v := f.V()
	f.move("ldr", fmt.Sprintf("%d", v), "FMOVD", fmt.Sprintf("F%d", uint8(v)), name)
	f.I("dup %v.2d, %v.d[0]", v, v)
	return v
}

// Return stores a result of 8 bytes.
func (f *Func) Return(name string, x X) {
	f.move("str", fmt.Sprintf("%x", x), "MOVD", fmt.Sprintf("R%d", uint8(x)), name)
}

// Return32 stores a result of 4 bytes.
func (f *Func) Return32(name string, x X) {
	f.move("str", fmt.Sprintf("%u", x), "MOVW", fmt.Sprintf("R%d", uint8(x)), name)
}

// ReturnFloat32 stores lane 0 of a vector of float32 as a result.
func (f *Func) ReturnFloat32(name string, v V) {
	f.move("str", fmt.Sprintf("%s", v), "FMOVS", fmt.Sprintf("F%d", uint8(v)), name)
}

// ReturnFloat64 stores lane 0 of a vector of float64 as a result.
func (f *Func) ReturnFloat64(name string, v V) {
	f.move("str", fmt.Sprintf("%d", v), "FMOVD", fmt.Sprintf("F%d", uint8(v)), name)
}

// Constant sets a general register to bits.
func (f *Func) Constant(x X, bits uint64) {
	if bits == 0 {
		f.I("mov %x, xzr", x)
		return
	}
	name := "movz"
	for shift := 0; shift < 64; shift += 16 {
		part := bits >> shift & 0xffff
		if part == 0 {
			continue
		}
		by := ""
		if shift > 0 {
			by = fmt.Sprintf(", lsl #%d", shift)
		}
		f.I(name+" %x, #%d"+by, x, part)
		name = "movk"
	}
}

// constraint is the build constraint of the files.
const constraint = "//go:build arm64 && !purego\n"

// Assembly returns the file as Go's assembler reads it.
func (f *File) Assembly(generated string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n#include \"textflag.h\"\n", generated, constraint)
	for _, fn := range f.Funcs {
		fmt.Fprintf(&b, "\n// func %s%s\n// Requires: %s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n\t// %s\n",
			fn.Name, strings.TrimPrefix(fn.signature, "func"), fn.Level.Requires, fn.Name, fn.size, fn.doc)
		for _, l := range fn.lines {
			b.WriteString(l.asGo + "\n")
		}
	}
	return b.String()
}

// Stubs returns the file's declarations in Go.
func (f *File) Stubs(generated, pkg string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\npackage %s\n", generated, constraint, pkg)
	for _, fn := range f.Funcs {
		fmt.Fprintf(&b, "\n//go:noescape\nfunc %s%s\n", fn.Name, strings.TrimPrefix(fn.signature, "func"))
	}
	return b.String()
}

// GNU returns a function as GNU's assembler reads it.
func (f *Func) GNU() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\t.arch %s\n\t.text\n%s:\n", f.Level.March, f.Name)
	for _, l := range f.lines {
		if l.asGNU != "" {
			b.WriteString(l.asGNU + "\n")
		}
	}
	return b.String()
}
