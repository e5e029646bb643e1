// Command roofline measures each kernel beside the machine's own ceiling: a
// streaming read of the same bytes, in the same run, turn by turn.
//
// A kernel that moves its bytes as fast as the plain read is at the limit of
// the memory; if it is below, the arithmetic or the order of access is
// what limits it. Bytes are counted of the rows that are read once; if a
// kernel reads rows for several contexts the time is of all of them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/learning-to-screen/l2s/benchmarks/internal/stream"
	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/kernels"
)

type shape struct {
	where           string
	rows, dim, size int // size: ids in a candidate set
}

var shapes = []shape{
	{"L1", 32, 200, 32},
	{"L2", 1000, 200, 300},
	{"L3", 10000, 200, 300},
	{"L3", 10000, 1500, 120},
	{"L3", 25000, 500, 200},
	{"DRAM", 131072, 1024, 300},
	{"DRAM", 262144, 640, 500},
}

// line is a row of the table.
type line struct {
	Where   string  `json:"where"`
	Shape   string  `json:"shape"`
	Kernel  string  `json:"kernel"`
	Bytes   int     `json:"bytes"`
	Micros  float64 `json:"us"`
	GBs     float64 `json:"gb_per_s"`
	Ceiling float64 `json:"ceiling_gb_per_s"`
}

// kernel is one thing to time: f once, or with a ceiling, beside read.
type kernel struct {
	name    string
	bytes   int
	f, read func()
}

func main() {
	rounds := flag.Int("rounds", 15, "`number` of rounds")
	large := flag.Bool("large", false, "add the shapes that fit no cache")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	runtime.LockOSThread()
	var table []line
	for _, s := range shapes {
		if s.where != "DRAM" || *large {
			table = append(table, measure(s, *rounds)...)
			runtime.GC()
		}
	}
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(map[string]any{"level": kernels.Level(), "rounds": *rounds, "rows": table}); err != nil {
			os.Exit(1)
		}
		return
	}
	fmt.Printf("level %s, one thread, medians of %d rounds\n\n", kernels.Level(), *rounds)
	fmt.Println("| set | shape | kernel | KB read | us | GB/s | ceiling GB/s |")
	fmt.Println("|---|---|---|---:|---:|---:|---:|")
	for _, l := range table {
		fmt.Printf("| %s | %s | %s | %.1f | %.2f | %.1f | %.1f |\n", l.Where, l.Shape, l.Kernel, float64(l.Bytes)/1e3, l.Micros, l.GBs, l.Ceiling)
	}
}

func float32s(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

func measure(s shape, rounds int) []line {
	r := rand.New(rand.NewPCG(1, uint64(s.rows)))
	n, d, stride := s.rows, s.dim, kernels.Int8Stride(s.dim)
	pool := make([]float32, 1<<16+1)
	for i := range pool {
		pool[i] = float32(r.NormFloat64())
	}
	wBytes, _ := bigmem.Alloc(4 * n * d)
	w := float32s(wBytes)
	for i := range w {
		w[i] = pool[i%len(pool)]
	}
	data, _ := bigmem.Alloc(n * stride)
	codes, err := kernels.NewInt8Rows(data, kernels.Float32Rows(w, d), nil)
	if err != nil {
		panic(err)
	}
	const contexts = 64
	var hs [contexts][]float32
	vs := make([]*kernels.Int8Vector, contexts)
	var sets [contexts][]uint32
	for c := range contexts {
		at := r.IntN(len(pool) - d)
		hs[c] = pool[at : at+d]
		vs[c] = kernels.NewInt8Vector(d)
		vs[c].Set(hs[c])
		for range s.size {
			sets[c] = append(sets[c], uint32(r.IntN(n)))
		}
		slices.Sort(sets[c])
	}
	next := 0
	turn := func() int { next = (next + 1) % contexts; return next }

	out := max(n, s.size)
	dst, upper := make([]float32, 4*out), make([]float32, 4*out)
	ref := make([]float64, out)
	readW, readCodes := stream.Read(wBytes), stream.Read(data)
	ids := func() []uint32 { return sets[turn()] }
	list := []kernel{
		{"float32 scan", 4 * n * d, func() { kernels.Scan(dst[:n], w, nil, hs[turn()]) }, readW},
		{"float32 argmax", 4 * n * d, func() { kernels.ArgmaxDot(w, hs[turn()]) }, readW},
		{"float64 reference scan", 4 * n * d, func() { kernels.Float32Rows(w, d).RefScan(ref[:n], nil, hs[turn()]) }, readW},
		{"int8 scan", n * stride, func() { codes.Bounds(dst[:n], upper[:n], vs[turn()]) }, readCodes},
		{"int8 scan, 4 contexts", n * stride, func() {
			i := turn() * 4 % contexts
			codes.Bounds(dst[:4*n], upper[:4*n], vs[i:i+4]...)
		}, readCodes},
		{"float32 gather-dot", 4 * s.size * d, func() { i := ids(); kernels.GatherDot(dst[:len(i)], w, nil, i, hs[turn()]) }, nil},
		{"int8 gather-dot", s.size * stride, func() { i := ids(); codes.GatherBounds(dst[:len(i)], upper[:len(i)], i, vs[turn()]) }, nil},
		{"int8 gather-dot, 4 contexts", s.size * stride, func() {
			i, c := ids(), turn()*4%contexts
			codes.GatherBounds(dst[:4*len(i)], upper[:4*len(i)], i, vs[c:c+4]...)
		}, nil},
		{"float64 re-rank of 10", 40 * d, func() { kernels.Float32Rows(w, d).RefGatherDot(ref[:10], nil, ids()[:10], hs[turn()]) }, nil},
	}
	var lines []line
	for _, k := range list {
		// A block of some hundred microseconds, so that the clock and the
		// first, cold call do not matter.
		calls := 1
		for time1(calls, k.f) < 300*time.Microsecond {
			calls *= 2
		}
		var times, reads []float64
		for range rounds {
			times = append(times, float64(time1(calls, k.f).Nanoseconds())/float64(calls))
			if k.read != nil {
				k.read()
				reads = append(reads, float64(time1(calls, k.read).Nanoseconds())/float64(calls))
			}
		}
		ns := median(times)
		l := line{Where: s.where, Shape: fmt.Sprintf("%d x %d", n, d), Kernel: k.name, Bytes: k.bytes, Micros: ns / 1000, GBs: float64(k.bytes) / ns}
		if k.read != nil {
			l.Ceiling = float64(k.bytes) / median(reads)
		}
		lines = append(lines, l)
	}
	// A gather's ceiling is the ceiling of a scan of the table that it reads from.
	for i := range lines {
		switch {
		case lines[i].Ceiling != 0:
		case i == 5 || i == 8:
			lines[i].Ceiling = lines[0].Ceiling
		default:
			lines[i].Ceiling = lines[3].Ceiling
		}
	}
	return lines
}

func time1(calls int, f func()) time.Duration {
	start := time.Now()
	for range calls {
		f()
	}
	return time.Since(start)
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
