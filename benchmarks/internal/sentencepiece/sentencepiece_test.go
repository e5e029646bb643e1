package sentencepiece

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// spec describes a small model.
type spec struct {
	pieces  []piece
	charmap []byte
	options [][2]uint64 // fields of the trainer that are numbers
}

func (s spec) bytes() []byte {
	var data []byte
	message := func(number protowire.Number, content []byte) {
		data = protowire.AppendBytes(protowire.AppendTag(data, number, protowire.BytesType), content)
	}
	for _, p := range s.pieces {
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), p.text)
		b = protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), math.Float32bits(p.score))
		message(1, protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), p.kind))
	}
	var b []byte
	for _, o := range s.options {
		b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(o[0]), protowire.VarintType), o[1])
	}
	message(2, b)
	message(3, protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), s.charmap))
	return data
}

func small(more ...piece) spec {
	return spec{pieces: append([]piece{
		{"</s>", 0, control}, {"<unk>", 0, unknown},
		{"▁", -3, normal}, {"a", -4, normal}, {"b", -4.5, normal}, {"ab", -5, normal}, {"▁a", -4, normal},
		{"ba", -7, normal}, {"abab", -9, normal}, {"é", -6, normal}, {"never", -1, unused},
	}, more...)}
}

func parsed(t testing.TB, s spec) *Model {
	t.Helper()
	m, err := Parse(s.bytes())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestEncodeFindsTheBestSplit(t *testing.T) {
	m := parsed(t, small(piece{"<sep>", 0, userDefined}))
	for _, c := range []struct {
		text, want string // pieces with spaces between
	}{
		{"", ""}, {"   ", ""},
		{"a", "▁a"}, {"  a   a ", "▁a ▁a"},
		{"ab", "▁ ab"}, // -3 and -5, for -4 and -4.5
		{"abab", "▁ abab"},
		{"bé", "▁ b é"},
		{"axyzb", "▁a <unk> b"}, // a run is one piece
		{"x<sep>y", "▁ <unk> <sep> <unk>"},
		{"\xffa", "▁ <unk> a"},
	} {
		var found []string
		for _, id := range m.Encode(nil, c.text) {
			found = append(found, m.pieces[id].text)
		}
		if got := strings.Join(found, " "); got != c.want {
			t.Errorf("%q: found %q, expected %q", c.text, got, c.want)
		}
	}
}

// No split of the text has a larger sum of scores, and its pieces make the text.
func TestNoSplitIsBetter(t *testing.T) {
	m := parsed(t, small())
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab]{1,8}( [ab]{1,3})?`).Draw(t, "text")
		ids := m.Encode([]uint32{7}, text)
		if ids[0] != 7 {
			t.Fatalf("found %v, expected what was there and the pieces", ids)
		}
		sum, joined := float32(0), ""
		for _, id := range ids[1:] {
			sum, joined = sum+m.pieces[id].score, joined+m.pieces[id].text
		}
		s := space + strings.ReplaceAll(text, " ", space)
		if joined != s || m.Decode(ids[1:]) != text {
			t.Fatalf("found the pieces of %q, and the text %q, expected %q", joined, m.Decode(ids[1:]), s)
		}
		var best func(rest string) float32
		best = func(rest string) float32 {
			if rest == "" {
				return 0
			}
			most := float32(-1e9)
			for piece, id := range m.ids {
				if strings.HasPrefix(rest, piece) {
					most = max(most, m.pieces[id].score+best(rest[len(piece):]))
				}
			}
			return most
		}
		if want := best(s); sum < want-1e-3 {
			t.Fatalf("%q: found a split of %v, expected %v", text, sum, want)
		}
	})
}

func TestBadModels(t *testing.T) {
	with := func(number, value uint64) spec { s := small(); s.options = [][2]uint64{{number, value}}; return s }
	charmap := func(b []byte) spec { s := small(); s.charmap = b; return s }
	for _, c := range []struct {
		spec spec
		want string
	}{
		{spec{}, "pieces: found 0"},
		{spec{pieces: []piece{{"a", 0, normal}}}, "found 0 of the unknown type and 0 </s>"},
		{small(piece{"a", 0, normal}), `pieces[11]: found "a", which pieces[3] is`},
		{small(piece{"<0x00>", 0, 6}), "pieces[11]: type: found 6"},
		{small(piece{"", 0, normal}), `pieces[11]: piece: found ""`},
		{with(3, 2), "model_type: found 2, expected 1"},
		{with(24, 1), "treat_whitespace_as_suffix: found 1"},
		{with(35, 1), "byte_fallback: found 1"},
		{charmap([]byte{1}), "precompiled_charsmap: found 1 bytes"},
		{charmap([]byte{3, 0, 0, 0, 1, 2, 3, 0}), "found a trie of 3 bytes"},
		{charmap([]byte{4, 0, 0, 0, 1, 2, 3, 0, 'a'}), "found 1 bytes of results"},
	} {
		if _, err := Parse(c.spec.bytes()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("found %v, expected %s", err, c.want)
		}
	}
	data := small().bytes()
	for n := 1; n < len(data); n += 7 {
		Parse(data[:n]) // must not panic
	}
	if _, err := Parse(data[:len(data)-1]); err == nil {
		t.Error("found no error for a file that was cut, expected one")
	}
}

func FuzzModel(f *testing.F) {
	f.Add(small().bytes(), "ab a")
	s := small()
	s.charmap = []byte{8, 0, 0, 0, 0, 4, 0, 0, 'a', 1, 0, 0, 'b', 0}
	f.Add(s.bytes(), "aé b")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		m, err := Parse(data)
		if err != nil {
			return
		}
		ids := m.Encode(nil, text)
		for _, id := range ids {
			if int(id) >= m.Len() {
				t.Fatalf("found the id %d, expected one below %d", id, m.Len())
			}
		}
		if joined := m.Decode(ids); !utf8.ValidString(joined) {
			t.Fatalf("found %q, expected UTF-8", joined)
		}
	})
}

// python splits lines of text by SentencePiece itself, the lines as JSON on its input.
const python = `
import json, sys, sentencepiece
m = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
lines = json.load(sys.stdin)
json.dump([{"IDs": i, "Text": m.decode(i)} for i in map(m.encode, lines)], sys.stdout)
`

// The pieces are SentencePiece's, and so is their text, on the texts of benchmarks/real/kinds and of
// ../shared/real.
func TestPiecesAreSentencePieces(t *testing.T) {
	folder := os.Getenv("REAL")
	models, _ := filepath.Glob(filepath.Join(folder, "firefox-en-pt", "*.spm"))
	if folder == "" || len(models) != 1 {
		t.Skip("REAL names no folder with firefox-en-pt")
	}
	command := os.Getenv("PYTHON")
	if command == "" {
		command = "python3"
	}
	if err := exec.Command(command, "-c", "import sentencepiece").Run(); err != nil {
		t.Skipf("%s has no sentencepiece; PYTHON names one that has: %v", command, err)
	}
	files, _ := filepath.Glob("../../real/kinds/*.txt")
	if len(files) == 0 {
		t.Fatal("found no texts in benchmarks/real/kinds")
	}
	lines := []string{"", " ", "\u00a0\u3000x\u200b", "ﬁﬀ ½ ① Ǆ", "e\u0301e\u0301\u0301", "a\x00b", "▁▁ ▁a"}
	for _, file := range append(files, "../../../../shared/real/test.txt", "../../../../shared/real/train.txt") {
		data, err := os.ReadFile(file)
		if err != nil && !strings.Contains(file, "kinds") {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.ToValidUTF8(string(data), "\ufffd"), "\n")...)
	}
	input, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(command, "-c", python, models[0])
	run.Stdin, run.Stderr = strings.NewReader(string(input)), os.Stderr
	output, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []struct {
		IDs  []uint32
		Text string
	}
	if err := json.Unmarshal(output, &want); err != nil || len(want) != len(lines) {
		t.Fatalf("found %d results, expected %d: %v", len(want), len(lines), err)
	}
	m, err := Load(models[0])
	if err != nil {
		t.Fatal(err)
	}
	differ := 0
	for i, line := range lines {
		if got := m.Encode(nil, line); !slices.Equal(got, want[i].IDs) || m.Decode(got) != want[i].Text {
			if differ++; differ < 10 {
				t.Errorf("%q:\nfound    %v %q\nexpected %v %q", line, got, m.Decode(got), want[i].IDs, want[i].Text)
			}
		}
	}
	t.Logf("%d lines, %d differ", len(lines), differ)
}
