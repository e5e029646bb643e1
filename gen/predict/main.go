// Command predict prints the table of predictions of benchmarks/LOG.md: for each inner loop
// the instructions and the cycles that llvm-mca expects, on arm64 and with AVX2. All data are taken
// to be in the first-level cache.
//
// It needs LLVM 17 or later, whose models know the Neoverse cores, and is run from
// gen by make predictions.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// unit is the number of elements of the table's figures: of a row, or of scores.
const unit = 256

// loop is an inner loop on both architectures.
type loop struct {
	name       string
	amd64      place
	arm64, dot place // dot on neondot, if that has its own form
	i8mm       place // and on neondot with I8MM
}

// place is the place of a loop: the function, the innermost loop of it counted from 0, and the
// elements that go through it in one turn, over all rows and contexts.
type place struct {
	function string
	at       int
	elements int
}

var loops = []loop{
	{"float32 scan", place{"scanAVX2", 0, 64}, place{"scanNEON", 0, 64}, place{}, place{}},
	{"float32 gather-dot", place{"gatherDotAVX2", 0, 32}, place{"gatherDotNEON", 0, 64}, place{}, place{}},
	{"float32, a row alone", place{"scanAVX2", 1, 32}, place{"scanNEON", 1, 16}, place{}, place{}},
	{"reference, float32", place{"refScanAVX2", 0, 32}, place{"refScanNEON", 0, 32}, place{}, place{}},
	{"reference, float16", place{"refScanF16AVX2", 0, 32}, place{"refScanF16NEON", 0, 32}, place{}, place{}},
	{"reference, bfloat16", place{"refScanBF16AVX2", 0, 32}, place{"refScanBF16NEON", 0, 32}, place{}, place{}},
	{"int8 bounds", place{"int8BoundsAVX2", 0, 512}, place{"int8BoundsNEON", 0, 512}, place{"int8BoundsNEONDOT", 0, 512}, place{}},
	{"int8 bounds, 2 contexts", place{"int8BoundsBatchAVX2", 0, 512}, place{"int8BoundsBatchNEON", 0, 128}, place{"int8BoundsBatchNEONDOT", 0, 128}, place{"int8BoundsBatchNEONI8MM", 0, 256}},
	{"int8 bounds, 4 contexts", place{}, place{"int8BoundsBatchNEON", 1, 256}, place{"int8BoundsBatchNEONDOT", 1, 256}, place{"int8BoundsBatchNEONI8MM", 1, 512}},
	{"int4 bounds", place{"int4BoundsAVX2", 0, 1024}, place{"int4BoundsNEON", 0, 1024}, place{"int4BoundsNEONDOT", 0, 1024}, place{}},
	{"widen float16", place{"widenF16AVX2", 0, 16}, place{"widenF16NEON", 0, 16}, place{}, place{}},
	{"quantise", place{"quantizeAVX2", 0, 16}, place{"quantizeNEON", 0, 16}, place{}, place{}},
	{"next above a threshold", place{}, place{"nextAboveNEON", 0, 16}, place{}, place{}},
	{"k-th of lanes", place{"kthOfLanesAVX2", 0, 16}, place{"kthOfLanesNEON", 0, 16}, place{}, place{}},
	{"exp and sum", place{"expSumAVX2", 0, 8}, place{"expSumNEON", 0, 8}, place{}, place{}},
	{"largest float64", place{"maxFloat64AVX2", 0, 16}, place{"maxFloat64NEON", 0, 16}, place{}, place{}},
	{"axpy", place{"axpyAVX2", 0, 16}, place{"axpyNEON", 0, 8}, place{}, place{}},
}

// withoutI8MM are the cores that cannot run the functions that end in I8MM.
var withoutI8MM = map[string]bool{"neoverse-n1": true, "apple-m1": true}

// cores are the columns of the table.
var cores = map[string][]string{
	"amd64": {"skylake"},
	"arm64": {"neoverse-n1", "neoverse-v1", "apple-m1"},
}

func main() {
	log.SetFlags(0)
	mca, objdump := tool("llvm-mca"), tool("llvm-objdump")
	binaries := map[string]string{}
	dir, err := os.MkdirTemp("", "predict")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for arch := range cores {
		binaries[arch] = filepath.Join(dir, arch)
		cmd := exec.Command("go", "test", "-c", "-o", binaries[arch], "./internal/codes/kernels")
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "GOOS=linux", "GOARCH="+arch)
		run(cmd)
	}
	header, rule := "| loop |", "|---|"
	for _, arch := range []string{"amd64", "arm64"} {
		level := map[string]string{"amd64": "avx2", "arm64": "arm64"}[arch]
		header, rule = header+" "+level+": instructions |", rule+"---:|"
		for _, core := range cores[arch] {
			header, rule = header+" "+core+" |", rule+"---:|"
		}
	}
	fmt.Println(header)
	fmt.Println(rule)
	for _, l := range loops {
		for _, level := range []struct {
			suffix string
			place  place
		}{{"", l.arm64}, {", neondot", l.dot}, {", I8MM", l.i8mm}} {
			if level.place.function == "" {
				continue
			}
			row := "| " + l.name + level.suffix + " |"
			row += figures(mca, objdump, binaries, "amd64", l.amd64)
			row += figures(mca, objdump, binaries, "arm64", level.place)
			fmt.Println(row)
		}
	}
}

// tool returns the path of a tool of LLVM 17 or later.
func tool(name string) string {
	for version := 25; version >= 17; version-- {
		if path, err := exec.LookPath(fmt.Sprintf("%s-%d", name, version)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		log.Fatalf("%s is missing: install LLVM, such as Debian's llvm-19", name)
	}
	m := regexp.MustCompile(`LLVM version (\d+)`).FindStringSubmatch(run(exec.Command(path, "--version")))
	if m == nil {
		log.Fatalf("%s --version: found no version", path)
	}
	if v, _ := strconv.Atoi(m[1]); v < 17 {
		log.Fatalf("%s: found LLVM %d, expected 17 or later", path, v)
	}
	return path
}

func run(cmd *exec.Cmd) string {
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return string(out)
}

// figures returns the table's cells for a loop on an architecture.
func figures(mca, objdump string, binaries map[string]string, arch string, p place) string {
	if p.function == "" {
		return strings.Repeat(" |", 1+len(cores[arch]))
	}
	body := innermost(objdump, binaries[arch], arch, p)
	scale := float64(unit) / float64(p.elements)
	cells := fmt.Sprintf(" %.0f |", scale*float64(len(body)))
	for _, core := range cores[arch] {
		if withoutI8MM[core] && strings.HasSuffix(p.function, "I8MM") {
			cells += " |"
			continue
		}
		const turns = 1000
		cmd := exec.Command(mca, "-mtriple="+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch],
			"-mcpu="+core, fmt.Sprintf("-iterations=%d", turns), "-resource-pressure=false", "-instruction-info=false")
		cmd.Stdin = strings.NewReader("loop:\n" + strings.Join(body, "\n") + "\nout:\n")
		m := regexp.MustCompile(`(?m)^Total Cycles: +(\d+)$`).FindStringSubmatch(run(cmd))
		if m == nil {
			log.Fatalf("%s, %s: llvm-mca reports no cycles", p.function, core)
		}
		cycles, _ := strconv.Atoi(m[1])
		figure := scale * float64(cycles) / turns
		if figure < 99.5 {
			cells += fmt.Sprintf(" %.1f |", figure)
		} else {
			cells += fmt.Sprintf(" %.0f |", figure)
		}
	}
	return cells
}

var (
	instruction = regexp.MustCompile(`^ *([0-9a-f]+): +\t?(.+?)\s*$`)
	jump        = regexp.MustCompile(`^(j\w+|b|b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, #\w+,)\s+0x([0-9a-f]+)`)
)

// innermost returns the instructions of one of the innermost loops of a function,
// from the label that its last instruction jumps to.
func innermost(objdump, binary, arch string, p place) []string {
	symbol := "github.com/learning-to-screen/l2s/kernels/asm." + p.function + ".abi0"
	out := run(exec.Command(objdump, "-d", "--no-show-raw-insn", "--disassemble-symbols="+symbol, binary))
	type line struct {
		at     uint64
		text   string
		target uint64 // of a jump, or 0
		branch string
	}
	var lines []line
	for _, s := range strings.Split(out, "\n") {
		m := instruction.FindStringSubmatch(s)
		if m == nil {
			continue
		}
		text, _, _ := strings.Cut(strings.ReplaceAll(m[2], "\t", " "), " <")
		text, _, _ = strings.Cut(text, " //")
		l := line{text: text}
		l.at, _ = strconv.ParseUint(m[1], 16, 64)
		if j := jump.FindStringSubmatch(text); j != nil {
			l.branch = j[1]
			l.target, _ = strconv.ParseUint(j[2], 16, 64)
		}
		lines = append(lines, l)
	}
	number := 0
	for end, l := range lines {
		if l.target == 0 || l.target > l.at {
			continue
		}
		start := end
		for start > 0 && lines[start].at > l.target {
			start--
		}
		inner := true
		for _, in := range lines[start:end] {
			inner = inner && (in.target == 0 || in.target > in.at)
		}
		if !inner {
			continue
		}
		if number < p.at {
			number++
			continue
		}
		var body []string
		for _, in := range lines[start : end+1] {
			switch {
			case in.target == l.target:
				in.text = in.branch + " loop"
			case in.target != 0:
				in.text = in.branch + " out"
			}
			body = append(body, in.text)
		}
		return body
	}
	log.Fatalf("%s: found %d innermost loops on %s, expected one more than %d", p.function, number, arch, p.at)
	return nil
}
