package asm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// allowed lists the extensions of each level, as avo names them. They are
// those that package simd asks cpuid for.
var allowed = map[string]string{
	"AVX2":   "AVX AVX2 FMA3 F16C BMI BMI2 " + baseline,
	"AVX512": "AVX AVX2 FMA3 F16C BMI BMI2 AVX512F AVX512BW AVX512DQ AVX512VL " + baseline,
}

// baseline is what every amd64 CPU has (MMX+ is avo's name for PREFETCHT0).
const baseline = "CMOV MMX+ SSE SSE2"

// vnni lists the functions that leaves call only where VNNI is.
var vnni = map[string]bool{
	"Int8BoundsAVX512": true, "Int8GatherBoundsAVX512": true,
	"Int4BoundsAVX512": true, "Int8BoundsBatchAVX512": true, "Int8GatherBoundsBatchAVX512": true,
}

// TestFunctionsUseOnlyTheirLevel reads the Requires line of every function.
func TestFunctionsUseOnlyTheirLevel(t *testing.T) {
	files, err := filepath.Glob("*_amd64.s")
	if err != nil || len(files) == 0 {
		t.Fatalf("no assembly found: %v", err)
	}
	function := regexp.MustCompile(`(?m)^// func (\w+)\(.*\n// Requires: (.*)\nTEXT ·(\w+)\(SB\), NOSPLIT, (.*)$`)
	high := regexp.MustCompile(`\b([XY](1[6-9]|2[0-9]|3[01])|Z[0-9]+|K[0-7])\b`)
	text := regexp.MustCompile(`(?m)^TEXT `)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := string(b)
		if !strings.Contains(s, "\n//go:build amd64 && !purego\n") {
			t.Errorf("%s: no build constraint", file)
		}
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
		// Registers 16 and up, masks and ZMM need AVX-512 whatever the
		// instruction.
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
