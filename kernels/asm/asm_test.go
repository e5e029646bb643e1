package asm

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed lists the extensions of each level, as avo names them. Package simd asks cpuid for the
// same extensions.
var allowed = map[string]string{
	"AVX2":   "AVX AVX2 FMA3 F16C BMI BMI2 POPCNT " + baseline,
	"AVX512": "AVX AVX2 FMA3 F16C BMI BMI2 POPCNT AVX512F AVX512BW AVX512DQ AVX512VL " + baseline,
}

// baseline has the extensions of every amd64 CPU (MMX+ is avo's name for PREFETCHT0).
const baseline = "CMOV MMX+ SSE SSE2"

// vnni lists the functions that are called only if VNNI is.
var vnni = map[string]bool{
	"int8BoundsAVX512": true, "int8GatherBoundsAVX512": true,
	"int4BoundsAVX512": true, "int8BoundsStreamAVX512": true, "int4BoundsStreamAVX512": true, "int8BoundsBatchAVX512": true, "int8GatherBoundsBatchAVX512": true,
	"int8PanelBoundsAVX512": true, "int4PanelBoundsAVX512": true,
	"scores7AVX512": true, "scores2AVX512": true, "select2AVX512": true, "lines2AVX512": true,
}

func init() {
	for _, kind := range []string{"Q80", "Q40", "Q50", "Q41", "Q51", "Q4K", "Q5K", "Q6K"} {
		vnni["blockBounds"+kind+"AVX512"], vnni["blockBatch"+kind+"AVX512"] = true, true
	}
}

// chooser finds a function that chooses among forms: no extensions are stated.
var chooser = regexp.MustCompile(`(?m)^// func (\w+)\(.*\nTEXT .*\n((?:[^/\n].*)?\n)*`)

// sources returns the files of an architecture, by their names, without the functions that choose
// among forms, and these by theirs.
func sources(t *testing.T, arch string) (text, choosers map[string]string) {
	files, err := filepath.Glob("*_" + arch + ".s")
	if err != nil || len(files) == 0 {
		t.Fatalf("no assembly found: %v", err)
	}
	text, choosers = map[string]string{}, map[string]string{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text[file] = chooser.ReplaceAllStringFunc(string(b), func(body string) string {
			choosers[chooser.FindStringSubmatch(body)[1]] = body
			return ""
		})
		if !strings.Contains(text[file], "\n//go:build "+arch+" && !purego\n") {
			t.Errorf("%s: no build constraint", file)
		}
	}
	return text, choosers
}

// TestFunctionsUseOnlyTheirLevel reads the Requires line of every function.
func TestFunctionsUseOnlyTheirLevel(t *testing.T) {
	function := regexp.MustCompile(`(?m)^// func (\w+)\(.*\n// Requires: (.*)\nTEXT ·(\w+)\(SB\), NOSPLIT, (.*)$`)
	high := regexp.MustCompile(`\b([XY](1[6-9]|2[0-9]|3[01])|Z[0-9]+|K[0-7])\b`)
	text := regexp.MustCompile(`(?m)^TEXT `)
	files, _ := sources(t, "amd64")
	for file, s := range files {
		found := function.FindAllStringSubmatch(s, -1)
		if n := len(text.FindAllString(s, -1)); len(found) != n {
			t.Errorf("%s: %d functions, %d with their extensions stated", file, n, len(found))
		}
		for _, m := range found {
			name := m[1]
			level := "AVX2"
			if strings.HasSuffix(name, "AVX512") {
				level = "AVX512"
			} else if !strings.HasSuffix(name, "AVX2") {
				t.Errorf("%s: %s names no level", file, name)
			}
			ok := " " + allowed[level] + " "
			if vnni[name] {
				ok += "AVX512VNNI "
			}
			for _, ext := range strings.Split(m[2], ", ") {
				if !strings.Contains(ok, " "+ext+" ") {
					t.Errorf("%s: %s uses %s, which is not in %s", file, name, ext, level)
				}
			}
		}
		// Registers 16 and up, masks and ZMM need AVX-512 for any instruction.
		for _, body := range strings.Split(s, "\nTEXT ")[1:] {
			name, _, _ := strings.Cut(strings.TrimPrefix(body, "·"), "(")
			if reg := high.FindString(body); reg != "" && !strings.HasSuffix(name, "AVX512") {
				t.Errorf("%s: %s uses register %s", file, name, reg)
			}
		}
		// Leaving the upper halves dirty would slow down every SSE
		// instruction after the call.
		if rets, zeros := strings.Count(s, "\tRET\n"), strings.Count(s, "\tVZEROUPPER\n\tRET\n"); rets != zeros {
			t.Errorf("%s: %d of %d returns without VZEROUPPER before them", file, rets-zeros, rets)
		}
	}
}

// advancedSIMD lists the instructions of every arm64 CPU that the kernels use, in the names of Go's
// assembler, and instructions that are written as numbers, in ARM's names.
const advancedSIMD = "ADD AND BEQ BGE BGT BLE BLT BNE CBNZ CBZ CLZ CMP CSEL FCMPS FCVTSD FLDPQ FMADDD FMOVD FMOVQ FMOVS " +
	"JMP LSL LSR MADD MOVD MOVK MOVW MOVWU MOVZ PRFM RBIT RET SUB SUBS TBZ " +
	"VADD VADDP VADDV VAND VBSL VCMTST VDUP VEOR VEXT VFMLA VLD1 VLD1R VMOV VMOVI VSHL VSLI VST1 VSUB VUMAX VUSHR VUZP1 VUZP2 VZIP1 VZIP2 " +
	"cmgt fabs fadd faddp fcmge fcmgt fcvtl fcvtl2 fcvtns fmaxnm fmaxnmv fminnm fminnmv fmla fmls fmul frintn fsub ldr " +
	"sadalp saddlp scvtf shll shll2 shrn smin smlal smlal2 smull smull2 sxtl sxtl2 umaxv"

// dotProducts and matrixProducts are the instructions of the extensions for them.
const (
	dotProducts    = "sdot"
	matrixProducts = "usmmla"
)

// TestARMFunctionsUseOnlyTheirLevel reads every instruction. The tests of gen/neon check that the
// numbers are the instructions in their comments.
func TestARMFunctionsUseOnlyTheirLevel(t *testing.T) {
	function := regexp.MustCompile(`(?s)\n// func (\w+)\([^\n]*\n// Requires: ([^\n]*)\nTEXT ·(\w+)\(SB\), NOSPLIT, \$0-\d+\n(.*?)\n\tRET\n(?:\n//|$)`)
	instruction := regexp.MustCompile(`(?m)^\t(?:WORD \$0x[0-9a-f]{8} // ([a-z0-9]+)|([A-Z0-9]+)(?:\.P)?\b)`)
	// The platform's register, the assembler's, the closure's, the goroutine's, the
	// frame pointer and the link register.
	reserved := regexp.MustCompile(`\b(R|x|w)(18|2[6-9]|30)\b`)
	used := map[string]bool{}
	files, _ := sources(t, "arm64")
	for file, s := range files {
		texts := strings.Count(s, "\nTEXT ")
		for rest := s; ; texts-- {
			at := function.FindStringSubmatchIndex(rest)
			if at == nil {
				break
			}
			name, requires, body := rest[at[2]:at[3]], rest[at[4]:at[5]], rest[at[8]:at[9]]
			rest = rest[at[9]:]
			ok, want := advancedSIMD, "ASIMD"
			if strings.HasSuffix(name, "NEONDOT") {
				ok, want = advancedSIMD+" "+dotProducts, "ASIMD, ASIMDDP"
			} else if strings.HasSuffix(name, "NEONI8MM") {
				ok, want = advancedSIMD+" "+dotProducts+" "+matrixProducts, "ASIMD, ASIMDDP, I8MM"
			} else if !strings.HasSuffix(name, "NEON") {
				t.Errorf("%s: %s names no level", file, name)
			}
			if requires != want {
				t.Errorf("%s: %s requires %s, want %s", file, name, requires, want)
			}
			for _, m := range instruction.FindAllStringSubmatch(body, -1) {
				used[m[1]+m[2]] = true
				if !slices.Contains(strings.Fields(ok), m[1]+m[2]) {
					t.Errorf("%s: %s uses %s, which is not in %s", file, name, m[1]+m[2], want)
				}
			}
			if reg := reserved.FindString(body); reg != "" {
				t.Errorf("%s: %s uses %s", file, name, reg)
			}
		}
		if texts != 0 {
			t.Errorf("%s: %d functions that could not be read", file, texts)
		}
	}
	for _, name := range strings.Fields(advancedSIMD + " " + dotProducts + " " + matrixProducts) {
		if !used[name] && name != "RET" { // which ends the text
			t.Errorf("%s is listed, but not used", name)
		}
	}
}

// choice is all that a function without a level does on each architecture: it may look at the type of
// the rows, and after that at a variable; it sets ok, and jumps to a form.
var choice = map[string]*regexp.Regexp{
	"amd64": regexp.MustCompile(`^(?:(\w+):\n\tCMPB element\+\d+\(FP\), \$(\d+)\n\tJNE  other(\w*)\n)?\tCMPB ·(\w+)\(SB\), \$0\n\tJEQ  (\w+)\n\tMOVB \$1, ok\+\d+\(FP\)\n\tJMP  ·(\w+)\(SB\)\n\n(\w+):\n`),
	"arm64": regexp.MustCompile(`^(?:(\w+):\n\tMOVBU element\+\d+\(FP\), R0\n\tCMP   \$(\d+), R0\n\tBNE   other(\w*)\n)?\tMOVBU ·(\w+)\(SB\), R0\n\tCBZ   R0, (\w+)\n\tMOVB  R0, ok\+\d+\(FP\)\n\tJMP   ·(\w+)\(SB\)\n\n(\w+):\n`),
}

// TestEachFormIsChosenForItsLevel reads the functions that choose: each form is jumped to
// once, from the function of its operation, if the variable of its level is set, and the better
// ones come first. A function for rows of any type has those of each type behind its number.
func TestEachFormIsChosenForItsLevel(t *testing.T) {
	variables := map[string][]string{ // best first
		"amd64": {"AVX512 hasVNNI", "AVX512 hasAVX512", "AVX2 hasAVX2"},
		"arm64": {"NEONI8MM hasI8MM", "NEONDOT hasNEONDot", "NEON hasNEON"},
	}
	elements := []string{"", "F16", "BF16", "Q40", "Q50", "Q80", "Q4K", "Q5K", "Q6K", "Q41", "Q51"} // by kernels.Element
	none := map[string]string{"amd64": "\tMOVB $0, ok+", "arm64": "\tMOVB ZR, ok+"}
	form := regexp.MustCompile(`(?m)^// func (\w+?)(AVX512|AVX2|NEONI8MM|NEONDOT|NEON)\(`)
	for arch, known := range variables {
		want := map[string]string{} // the level and the variable of each form
		files, choosers := sources(t, arch)
		for _, s := range files {
			for _, m := range form.FindAllStringSubmatch(s, -1) {
				name, level := m[1]+m[2], m[2]
				i := slices.IndexFunc(known, func(v string) bool {
					return strings.HasPrefix(v, level+" ") && (level != "AVX512" || vnni[name] == strings.HasSuffix(v, "VNNI"))
				})
				want[name] = known[i]
			}
		}
		for operation, rest := range choosers {
			rest = strings.TrimSpace(rest[strings.Index(rest, "$0-"):])
			_, rest, _ = strings.Cut(rest, "\n")
			name, typed := strings.CutSuffix(operation, "Of")
			if name = strings.ToLower(name[:1]) + name[1:]; typed {
				rest = "first:\n" + rest
			}
			kind, end := "", "first" // the type, and the label after its forms
			for last := -1; ; {
				m := choice[arch].FindStringSubmatch(rest)
				if m == nil {
					break
				}
				rest = rest[len(m[0]):]
				if m[1] != "" {
					if number := slices.Index(elements, m[3]); strconv.Itoa(number) != m[2] || m[1] != end {
						t.Errorf("%s: %s: found the number %s for %q at %s, expected %d at %s", arch, operation, m[2], m[3], m[1], number, end)
					}
					kind, end, last = m[3], "other"+m[3], -1
				}
				level, variable, _ := strings.Cut(want[m[6]], " ")
				at := slices.Index(known, want[m[6]])
				if m[6] != name+kind+level || m[4] != variable || m[5] != m[7] || at <= last {
					t.Errorf("%s: %s: found a jump to %s for %s, expected a lower level's, for %q", arch, operation, m[6], m[4], want[m[6]])
				}
				last = at
				delete(want, m[6])
			}
			if typed {
				rest = strings.TrimPrefix(rest, end+":\n")
			}
			if !strings.HasPrefix(rest, none[arch]) || strings.Count(rest, "\n") != 1 || !strings.HasSuffix(rest, "(FP)\n\tRET") {
				t.Errorf("%s: %s: found %q after the jumps, expected that ok is false", arch, operation, rest)
			}
		}
		for form := range want {
			t.Errorf("%s: %s is never chosen", arch, form)
		}
	}
}
