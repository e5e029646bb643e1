package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	goodLabels = joined("labels", layerArgs(), "--contexts", "H.npy", "--out", "out.labels", "--quiet")
	goodMerge  = []string{"merge", "--out", "out.labels", "--quiet", "part-0", "part-1", "part-2"}
)

// labelParts writes n parts of the labels of H.npy, in part-0 to part-(n-1).
func labelParts(t *testing.T, dir string, n int) (parts []string) {
	t.Helper()
	for i := range n {
		parts = append(parts, fmt.Sprintf("part-%d", i))
		succeed(t, dir, joined(goodLabels, "--out", parts[i], "--shard", fmt.Sprintf("%d/%d", i, n))...)
	}
	return parts
}

func TestShardsMergeToWhatOneProcessWrites(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	o := object(t, dir, joined(goodLabels, "--json")...)
	for name, want := range map[string]float64{"k": 5, "first": 0, "contexts": tinyTrain, "corpus": tinyTrain, "labels": tinyLabels, "dim": tinyDim} {
		if got := number(t, o, name); got != want {
			t.Errorf("%s: found %v, expected %v", name, got, want)
		}
	}
	expectFields(t, o, "out", "seconds", "level")
	want := readFile(t, at("out.labels"))
	for _, n := range []int{1, 3, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			parts := labelParts(t, dir, n)
			slices.Reverse(parts)
			o := object(t, dir, joined("merge", "--out", "merged", "--quiet", "--json", parts)...)
			if found := number(t, o, "parts"); found != float64(n) {
				t.Errorf("found %v parts, expected %d", found, n)
			}
			if !bytes.Equal(readFile(t, at("merged")), want) {
				t.Error("found other bytes than one process writes, expected the same")
			}
		})
	}
	t.Run("training takes them for its own", func(t *testing.T) {
		succeed(t, dir, joined(goodTrain, "--labels", "merged")...)
		if !bytes.Equal(readFile(t, at("out.l2s")), readFile(t, at("m.l2s"))) {
			t.Error("found another screen, expected the screen of a run that finds the labels")
		}
	})
	t.Run("progress and a report for people", func(t *testing.T) {
		r := invoke(t, dir, joined(goodLabels, "--quiet=false", "--shard", "1/3")...)
		if r.code != 0 || r.stdout != "out.labels: the best 5 labels of contexts 300 to 599 of 900\n" || !strings.Contains(r.stderr, "labels: 300 contexts") {
			t.Errorf("found exit status %d, %q and %q", r.code, r.stdout, r.stderr)
		}
		parts := labelParts(t, dir, 3)
		r = invoke(t, dir, joined("merge", "--out", "out.labels", parts)...)
		if r.code != 0 || r.stdout != "out.labels: the best 5 labels of 900 contexts\n" || !strings.Contains(r.stderr, "merge: 900 contexts") {
			t.Errorf("found exit status %d, %q and %q", r.code, r.stdout, r.stderr)
		}
	})
}

// Shards are a partition of the contexts into neighbours, as equal as can be.
func TestShardsArePartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 1000).Draw(t, "shards")
		n := rapid.IntRange(shards, 1<<30).Draw(t, "contexts")
		next := 0
		for i := range shards {
			first, end := shard{i, shards}.of(n)
			if first != next || end-first < n/shards || end-first > n/shards+1 {
				t.Fatalf("shard %d: found contexts %d to %d, expected about %d from %d on", i, first, end-1, n/shards, next)
			}
			next = end
		}
		if next != n {
			t.Fatalf("found %d contexts in all, expected %d", next, n)
		}
	})
}

// relabelled replaces the labels of the first context in a file of labels, and updates the
// checksums.
func relabelled(name string, ids ...uint32) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		data := readFile(t, path)
		const header = 128
		for i, id := range ids {
			binary.LittleEndian.PutUint32(data[header+4*i:], id)
		}
		table := crc32.MakeTable(crc32.Castagnoli)
		binary.LittleEndian.PutUint32(data[120:], crc32.Checksum(data[header:], table))
		binary.LittleEndian.PutUint32(data[124:], crc32.Checksum(data[:124], table))
		writeFile(t, path, data)
	}
}

func TestBadLabels(t *testing.T) {
	whole := func(more ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			succeed(t, dir, joined(goodLabels, "--out", "H.labels", more)...)
		}
	}
	parts := func(t *testing.T, dir string) { labelParts(t, dir, 3) }
	withLabels := joined(goodTrain, "--labels", "H.labels")
	flipped := func(name string, at int) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			data := readFile(t, filepath.Join(dir, name))
			data[at] ^= 1
			writeFile(t, filepath.Join(dir, name), data)
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	runCases(t, []badCase{
		{name: "labels: no --out", args: joined("labels", layerArgs(), "--contexts", "H.npy"), code: 2, want: []string{"missing --out"}},
		{name: "labels: a shard without its number", args: joined(goodLabels, "--shard", "3"), code: 2, want: []string{`"3"`, "--shard", "i/n"}},
		{name: "labels: a shard too many", args: joined(goodLabels, "--shard", "3/3"), code: 2, want: []string{`"3/3"`, "--shard", "0 <= i < n"}},
		{name: "labels: no shards", args: joined(goodLabels, "--shard", "0/0"), code: 2, want: []string{"--shard"}},
		{name: "labels: a shard below zero", args: joined(goodLabels, "--shard", "-1/3"), code: 2, want: []string{"--shard"}},
		{name: "labels: words for a shard", args: joined(goodLabels, "--shard", "$JOB_COMPLETION_INDEX/8"), code: 2, want: []string{"--shard"}},
		{name: "labels: more shards than contexts", args: joined(goodLabels, "--shard", "0/901"), code: 1, want: []string{"H.npy", "900 contexts", "901 shards"}},
		{name: "labels: k above the labels", args: joined(goodLabels, "--k", "301"), code: 1, want: []string{"W.npy", "300", "301"}},
		{name: "labels: NaN", files: poisoned("H.npy", 899*tinyDim+3, math.NaN()), args: joined(goodLabels, "--shard", "2/3"), code: 1, want: []string{"H.npy", "NaN", "899"}},
		{name: "labels: over the contexts", args: joined(goodLabels, "--out", "H.npy"), code: 2, want: []string{"--out H.npy would replace"}},
		{name: "labels: a missing folder", args: joined(goodLabels, "--out", "no/out"), code: 1, want: []string{"no/out: cannot be written"}},
		{name: "merge: no parts", args: []string{"merge", "--out", "x"}, code: 2, want: []string{"one or more files of labels"}},
		{name: "merge: no --out", args: []string{"merge", "part-0"}, code: 2, want: []string{"missing --out"}},
		{name: "merge: a missing part", files: then(parts, remove("part-1")), args: goodMerge, code: 1, want: []string{"part-1", "no such file"}},
		{name: "merge: a part left out", files: parts, args: goodMerge[:6], code: 1, want: []string{"contexts 600 to 899", "part-1", "missing"}},
		{name: "merge: over a part", files: parts, args: joined(goodMerge, "--out", "part-2"), code: 2, want: []string{"--out part-2 would replace"}},
		{name: "merge: a damaged part", files: then(parts, flipped("part-1", 200)), args: goodMerge, code: 1, want: []string{"part-1", "found", "expected"}},
		{name: "merge: a truncated part", files: then(parts, truncated("part-1", 4)), args: goodMerge, code: 1, want: []string{"part-1: file size: found", "expected"}},
		{name: "merge: a part with a label twice", files: then(parts, relabelled("part-1", 7, 7, 7, 7, 7)), args: goodMerge, code: 1, want: []string{"part-1: ids: found 7 twice in context 300, expected 5 different ones"}},
		{name: "train: labels with one twice", files: then(whole(), relabelled("H.labels", 9, 1, 2, 3, 9)), args: withLabels, code: 1, want: []string{"H.labels: ids: found 9 twice in context 0, expected 5 different ones"}},
		{name: "merge: a foreign part", args: []string{"merge", "--out", "x", "W.npy"}, code: 1, want: []string{"W.npy: magic: found", "not a file of labels"}},
		{name: "train: labels that are missing", args: withLabels, code: 1, want: []string{"H.labels", "no such file"}},
		{name: "train: labels of another k", files: whole("--k", "4"), args: withLabels, code: 1, want: []string{"H.labels: k: found 4 labels of each context, expected 5"}},
		{name: "train: labels of other contexts", files: then(whole(), poisoned("H.npy", 77, 0.25)), args: withLabels, code: 1, want: []string{"H.labels: digest of the contexts: found", "H.npy", "other contexts"}},
		{name: "train: labels of more contexts", files: whole("--contexts", "T.npy"), args: withLabels, code: 1, want: []string{"H.labels: contexts: found a corpus of 1200", "900 of H.npy"}},
		{name: "train: labels of another layer", files: then(whole(), poisoned("b.npy", 7, 0.25)), args: withLabels, code: 1, want: []string{"H.labels: fingerprint: found", "W.npy", "another layer"}},
		{name: "train: labels of a shard", files: whole("--shard", "1/3"), args: withLabels, code: 1, want: []string{"H.labels: contexts: found 300 to 599, expected all 900", "l2s merge"}},
		{name: "train: damaged labels", files: then(whole(), flipped("H.labels", 500)), args: withLabels, code: 1, want: []string{"H.labels", "found", "expected"}},
		{name: "train: over the labels", files: whole(), args: joined(withLabels, "--out", "H.labels"), code: 2, want: []string{"--out H.labels would replace"}},
	})
}

// A flag has been given, whatever the name in it looks like.
func TestAFileWithTheNameOfAnEmptyList(t *testing.T) {
	dir := files(t)
	want := succeed(t, dir, goodLabels...)
	if got := succeed(t, dir, joined(goodLabels, "--out", "[]")...); got != strings.Replace(want, "out.labels", "[]", 1) {
		t.Errorf("found %q, expected the labels of %q", got, want)
	}
}
