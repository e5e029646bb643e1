package head

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/learning-to-screen/l2s/internal/jsonscan"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// tokens are what is known of a tokenizer's tokens: how many ids there are, and, if
// they are kept, their texts. The memory follows the file, whatever the ids are.
type tokens struct {
	n     int64             // one more than the largest id
	texts map[uint32]string // nil if they are not kept

	specials     []uint32 // the ids of the tokens that their files call special
	onlySpecials bool     // files that call none special are not read
}

// add notes the token of an id, which is from 0 to largestID.
func (t *tokens) add(id int64, text []byte) {
	t.n = max(t.n, id+1)
	if t.texts != nil {
		t.texts[uint32(id)] = string(text)
	}
}

// largestID is the largest id that a token may have.
const largestID = math.MaxUint32 - 1

// tokenizerSize returns one more than the largest id that the files of a folder
// give a token, 0 if they do not say what all tokens are.
func tokenizerSize(folder string, c *config) (n int, err error) {
	var t tokens
	if known, err := t.folder(folder); err != nil || !known {
		return 0, err
	}
	return max(int(min(t.n, math.MaxInt)), c.tokens), nil
}

// Tokens returns the text of each token of a model, by its id, as the tokenizer has
// it: pieces, in which Ġ or ▁ most often stands for a space. The source is the folder
// of a model, a tokenizer.json, a tokenizer.model of sentencepiece, or a GGUF file,
// FILE.gguf. It reads the whole file, tens of megabytes for large vocabularies. An
// error names the file, what was found and what was expected.
func Tokens(source string) (map[uint32]string, error) {
	t := tokens{texts: map[uint32]string{}}
	info, err := os.Stat(source)
	switch ext := filepath.Ext(source); {
	case err == nil && info.IsDir():
		var known bool
		if known, err = t.folder(source); err == nil && !known {
			err = fail(source, "tokens", "found a folder without %s and %s, expected one of them", tokenizerFile, piecesFile)
		}
	case ext == ".gguf":
		err = t.gguf(source)
	case ext == filepath.Ext(piecesFile):
		found := false
		err = readTokens(source, func(data []byte) error { return t.pieces(data, &found) })
		if err == nil && !found {
			err = fail(source, "tokens", "found another kind of file, expected a model of sentencepiece")
		}
	default:
		found := false
		err = readTokens(source, inJSON(func(v jsonscan.Value) error { return t.tokenizerJSON(v, &found) }))
	}
	if err != nil {
		return nil, err
	}
	return t.texts, nil
}

// readTokens calls parse with the bytes of a file.
func readTokens(path string, parse func(data []byte) error) error {
	data, err := tensorfile.ReadFile(path)
	if err == nil {
		if err = parse(data); err != nil {
			err = fail(path, "tokens", "%w", err)
		}
	}
	return err
}

// inJSON returns what parses the value of a file of JSON.
func inJSON(parse func(v jsonscan.Value) error) func(data []byte) error {
	return func(data []byte) error {
		v, err := jsonscan.Parse(data)
		if err == nil {
			err = parse(v)
		}
		return err
	}
}

// folder reads the tokens of a folder, and reports whether its files say what all
// tokens are. The forms are defined by the tokenizers library,
// https://huggingface.co/docs/tokenizers, by transformers, and by sentencepiece's
// sentencepiece_model.proto.
func (t *tokens) folder(folder string) (known bool, err error) {
	custom, pieces := false, false
	for _, file := range []struct {
		name  string
		parse func(data []byte) error
	}{
		{tokenizerConfigFile, inJSON(func(v jsonscan.Value) error { return t.tokenizerConfig(v, &custom) })},
		{addedTokensFile, inJSON(t.object)},
		{tokenizerFile, inJSON(func(v jsonscan.Value) error { return t.tokenizerJSON(v, &known) })},
		// What is no model of sentencepiece says nothing: other tokenizers have files
		// of this name, too.
		{piecesFile, func(data []byte) error { return t.pieces(data, &pieces) }},
	} {
		if known && file.name == piecesFile || t.onlySpecials && file.name == addedTokensFile {
			continue
		}
		if err := readTokens(filepath.Join(folder, file.name), file.parse); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return known || pieces && !custom, nil
}

// gguf reads the tokens of a GGUF file.
func (t *tokens) gguf(path string) error {
	f, err := tensorfile.OpenFile(path, func(key []byte) bool { return string(key) == ggufTokens })
	if err != nil {
		return err
	}
	defer f.Close()
	found, err := f.Strings(ggufTokens, func(i int, text []byte) { t.add(int64(i), text) })
	if err == nil && !found {
		err = fail(path, "metadata", "found no %s, expected the tokens", ggufTokens)
	}
	return err
}

// tokenizerJSON reads a tokenizer.json: its model's vocabulary, an object of ids or
// a list of pieces, and the added tokens.
func (t *tokens) tokenizerJSON(v jsonscan.Value, found *bool) error {
	err := v.Entries(func(name []byte, v jsonscan.Value) error {
		switch string(name) {
		case "added_tokens":
			return v.Array(func(v jsonscan.Value) error { return t.addedToken(v, -1) })
		case "model":
			return v.Entries(func(name []byte, v jsonscan.Value) error {
				if string(name) != "vocab" {
					return nil
				}
				*found = true
				if v[0] == '[' {
					return t.list(v)
				}
				return t.object(v)
			})
		}
		return nil
	})
	if err == nil && !*found {
		err = errors.New("found no vocabulary in the model, expected one")
	}
	return err
}

// list reads a list of pieces, whose places are their ids. A piece is a list, which
// begins with its text.
func (t *tokens) list(v jsonscan.Value) error {
	id := int64(0)
	return v.Array(func(v jsonscan.Value) error {
		var text []byte
		if v[0] == '[' {
			first := true
			if err := v.Array(func(v jsonscan.Value) (err error) {
				if first && v[0] == '"' {
					text, err = v.Bytes()
				}
				first = false
				return err
			}); err != nil {
				return err
			}
		}
		t.add(id, text)
		id++
		return nil
	})
}

// object reads an object of texts and their ids.
func (t *tokens) object(v jsonscan.Value) error {
	return v.Entries(func(text []byte, v jsonscan.Value) error {
		id, err := readID(v)
		if err == nil {
			t.add(id, text)
		}
		return err
	})
}

// addedToken reads an object with the text of a token and with its id, unless that is known
// already, from 0 on.
func (t *tokens) addedToken(v jsonscan.Value, id int64) error {
	known, special := id >= 0, false
	var text []byte
	err := v.Entries(func(name []byte, v jsonscan.Value) (err error) {
		switch field := string(name); {
		case field == "id" && !known:
			id, err = readID(v)
		case field == "content" && v[0] == '"':
			text, err = v.Bytes()
		case field == "special" && !v.IsNull():
			special, err = v.Bool()
		}
		return err
	})
	if err == nil && id >= 0 {
		t.add(id, text)
		if special {
			t.specials = append(t.specials, uint32(id))
		}
	}
	return err
}

// readID reads an id.
func readID(v jsonscan.Value) (int64, error) {
	x, err := strconv.ParseInt(string(v), 10, 64)
	switch {
	case err != nil:
		err = v.Found("an integer")
	case x < 0 || x > largestID:
		err = fmt.Errorf("found the id %d, expected 0 to %d", x, int64(largestID))
	}
	return x, err
}

// tokenizerConfig reads of a tokenizer_config.json the added tokens, and whether the
// tokenizer is code of the model's own, which may add others.
func (t *tokens) tokenizerConfig(v jsonscan.Value, custom *bool) error {
	return v.Entries(func(name []byte, v jsonscan.Value) error {
		switch string(name) {
		case "auto_map":
			*custom = !v.IsNull()
		case "added_tokens_decoder":
			return v.Entries(func(name []byte, v jsonscan.Value) error {
				id, err := strconv.ParseUint(string(name), 10, 32)
				if err != nil {
					return fmt.Errorf("found %s in added_tokens_decoder, expected an id", tensorfile.Label(string(name)))
				}
				id = min(id, largestID)
				if v[0] != '{' {
					t.add(int64(id), nil)
					return nil
				}
				return t.addedToken(v, int64(id))
			})
		}
		return nil
	})
}

// pieces reads a sentencepiece model, a message of protocol buffers whose field 1 they
// are, each a message whose field 1 is its text. Of what is no such message nothing is
// found.
func (t *tokens) pieces(data []byte, found *bool) error {
	if !eachField(data, func(uint64, []byte, uint64) {}) {
		return nil
	}
	id := int64(0)
	eachField(data, func(tag uint64, piece []byte, _ uint64) {
		if tag != modelPiece {
			return
		}
		var text []byte
		eachField(piece, func(tag uint64, value []byte, kind uint64) {
			switch {
			case tag == pieceText:
				text = value
			case tag == pieceType && (kind == unknownPiece || kind == controlPiece):
				t.specials = append(t.specials, uint32(id))
			}
		})
		t.add(id, text)
		id++
	})
	*found = id > 0
	return nil
}

// Fields of sentencepiece's messages, by their tags: a piece of a model, and the text and the
// type of a piece.
const (
	modelPiece = 1<<3 | 2
	pieceText  = 1<<3 | 2
	pieceType  = 3 << 3
)

// Types of pieces.
const (
	unknownPiece = 2
	controlPiece = 3
)

// eachField calls f for each field of a message of protocol buffers: with its tag, the bytes of
// one that has a length and the number of a varint. It returns false for what is no such
// message.
func eachField(data []byte, f func(tag uint64, value []byte, number uint64)) bool {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
			return false
		}
		data = data[n:]
		var number, size uint64
		switch tag & 7 {
		case 0, 2:
			if number, n = binary.Uvarint(data); n <= 0 {
				return false
			}
			data = data[n:]
			if tag&7 == 2 {
				size = number
			}
		case 1:
			size = 8
		case 5:
			size = 4
		default:
			return false
		}
		if size > uint64(len(data)) {
			return false
		}
		f(tag, data[:size:size], number)
		data = data[size:]
	}
	return true
}
