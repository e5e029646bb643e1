// Package sentencepiece splits text into the pieces of a unigram model, and joins them again, as
// Google's SentencePiece does (Kudo, Subword Regularization, 2018). It reads the models that
// SentencePiece writes, .spm or .model: of the libraries for Go, some know models of BPE only, and
// others normalise by clusters of characters, as Hugging Face does, which gives other pieces.
package sentencepiece

import (
	"fmt"
	"math"
	"os"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Model has the pieces of a model. It does not change, and any number of goroutines may use it.
type Model struct {
	pieces  []piece
	ids     map[string]uint32 // of the pieces that text is split into
	longest int               // bytes of one of them
	unknown uint32
	end     uint32
	rules   rules
	least   float32 // score
	most    float32
}

type piece struct {
	text  string
	score float32
	kind  uint64
}

// The kinds of pieces.
const (
	normal      = 1
	unknown     = 2
	control     = 3
	userDefined = 4
	unused      = 5
)

const (
	space = "▁" // in the place of a space
	// An unknown character scores this much less than the worst piece.
	unknownPenalty = 10
	// unknownText is the text of the unknown piece.
	unknownText = " ⁇ "
)

// Load reads the model in a file. Errors name the file, the field, and the value found.
func Load(path string) (*Model, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Parse reads a model.
func Parse(data []byte) (*Model, error) {
	m := &Model{ids: map[string]uint32{}, rules: rules{prefix: true, squeeze: true}}
	err := fields(data, func(number protowire.Number, _ uint64, value []byte) error {
		switch number {
		case 1:
			return m.addPiece(value)
		case 2:
			return trainer(value)
		case 3:
			return m.rules.parse(value)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sentencepiece: %w", err)
	}
	return m, m.finish()
}

// fields calls f with every field of a message: its number, and its value, a number or bytes.
func fields(data []byte, f func(number protowire.Number, value uint64, content []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("message: found %d bytes that are no field: %w", len(data), protowire.ParseError(n))
		}
		data = data[n:]
		var value uint64
		var content []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(data)
			value = uint64(bits)
		case protowire.BytesType:
			content, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return fmt.Errorf("field %d: found %d bytes that are no value: %w", number, len(data), protowire.ParseError(n))
		}
		data = data[n:]
		if err := f(number, value, content); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) addPiece(data []byte) error {
	p := piece{kind: normal}
	err := fields(data, func(number protowire.Number, value uint64, content []byte) error {
		switch number {
		case 1:
			p.text = string(content)
		case 2:
			p.score = math.Float32frombits(uint32(value))
		case 3:
			p.kind = value
		}
		return nil
	})
	id := len(m.pieces)
	switch {
	case err != nil:
		return fmt.Errorf("pieces[%d]: %w", id, err)
	case p.text == "" || !utf8.ValidString(p.text):
		return fmt.Errorf("pieces[%d]: piece: found %q, expected UTF-8 that is not empty", id, p.text)
	case p.kind < normal || p.kind > unused:
		return fmt.Errorf("pieces[%d]: type: found %d, expected %d to %d: pieces of bytes are not known here", id, p.kind, normal, unused)
	case !(math.Abs(float64(p.score)) <= math.MaxFloat32/4):
		return fmt.Errorf("pieces[%d]: score: found %v, expected a number", id, p.score)
	}
	m.pieces = append(m.pieces, p)
	return nil
}

// trainer checks that the model is of the kind that Encode knows.
func trainer(data []byte) error {
	return fields(data, func(number protowire.Number, value uint64, _ []byte) error {
		switch {
		case number == 3 && value != 1:
			return fmt.Errorf("trainer_spec: model_type: found %d, expected 1, unigram", value)
		case number == 24 && value != 0:
			return fmt.Errorf("trainer_spec: treat_whitespace_as_suffix: found %d, expected 0", value)
		case number == 35 && value != 0:
			return fmt.Errorf("trainer_spec: byte_fallback: found %d, expected 0", value)
		}
		return nil
	})
}

// finish makes the table of pieces.
func (m *Model) finish() error {
	if len(m.pieces) == 0 || uint64(len(m.pieces)) > math.MaxUint32 {
		return fmt.Errorf("sentencepiece: pieces: found %d, expected some", len(m.pieces))
	}
	unknowns, ends := 0, 0
	m.least, m.most = math.MaxFloat32, -math.MaxFloat32
	seen := make(map[string]int, len(m.pieces))
	for i, p := range m.pieces {
		if before, ok := seen[p.text]; ok {
			return fmt.Errorf("sentencepiece: pieces[%d]: found %q, which pieces[%d] is", i, p.text, before)
		}
		seen[p.text] = i
		switch p.kind {
		case unknown:
			m.unknown = uint32(i)
			unknowns++
		case control:
			if p.text == "</s>" {
				m.end = uint32(i)
				ends++
			}
		case normal:
			m.least, m.most = min(m.least, p.score), max(m.most, p.score)
			fallthrough
		case userDefined:
			m.ids[p.text] = uint32(i)
			m.longest = max(m.longest, len(p.text))
		}
	}
	if unknowns != 1 || ends != 1 {
		return fmt.Errorf("sentencepiece: pieces: found %d of the unknown type and %d </s> of the control type, expected one of each", unknowns, ends)
	}
	return nil
}

// Len returns the number of pieces.
func (m *Model) Len() int { return len(m.pieces) }

// End returns the id of </s>.
func (m *Model) End() uint32 { return m.end }

// Encode appends the ids of the pieces of text to dst: the split of the normalised text with the
// largest sum of scores. A run of unknown characters is one unknown piece. There is no </s>.
func (m *Model) Encode(dst []uint32, text string) []uint32 {
	s := m.rules.normalize(text)
	// best[i] is the last piece of the best split of s[:i].
	type last struct {
		score float32
		from  int
		id    uint32
		found bool
	}
	best := make([]last, len(s)+1)
	for at := 0; at < len(s); {
		_, size := utf8.DecodeRuneInString(s[at:])
		offer := func(end int, score float32, id uint32) {
			if b := &best[end]; !b.found || best[at].score+score > b.score {
				*b = last{best[at].score + score, at, id, true}
			}
		}
		single := false
		for end := at + size; end <= min(len(s), at+m.longest); {
			if id, ok := m.ids[s[at:end]]; ok {
				score := m.pieces[id].score
				if m.pieces[id].kind == userDefined {
					score = float32(end-at)*m.most - .1
				}
				offer(end, score, id)
				single = single || end == at+size
			}
			_, next := utf8.DecodeRuneInString(s[end:])
			end += max(next, 1)
		}
		if !single {
			offer(at+size, m.least-unknownPenalty, m.unknown)
		}
		at += size
	}
	start := len(dst)
	for at := len(s); at > 0; at = best[at].from {
		if id := best[at].id; id != m.unknown || len(dst) == start || dst[len(dst)-1] != id {
			dst = append(dst, id)
		}
	}
	for i, j := start, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// Decode returns the text of pieces. Pieces of the control type have none. It panics for an id that
// is no piece.
func (m *Model) Decode(ids []uint32) string {
	var b strings.Builder
	for _, id := range ids {
		switch p := m.pieces[id]; p.kind {
		case control:
		case unknown:
			b.WriteString(unknownText)
		default:
			text := p.text
			if b.Len() == 0 && (m.rules.prefix || m.rules.squeeze) {
				text = strings.TrimPrefix(text, space)
			}
			b.WriteString(strings.ReplaceAll(text, space, " "))
		}
	}
	return b.String()
}
