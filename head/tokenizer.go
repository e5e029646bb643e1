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
	n     int               // one more than the largest id
	texts map[uint32]string // nil if they are not kept

	specials []uint32 // the ids of the tokens that their files call special
}

// add notes the token of an id, which is from 0 to largestID.
func (t *tokens) add(id int, text []byte) {
	t.n = max(t.n, id+1)
	if t.texts != nil {
		t.texts[uint32(id)] = string(text)
	}
}

// largestID is the largest id that a token may have.
const largestID = min(math.MaxUint32-1, math.MaxInt-1)

// tokenizerSize returns one more than the largest id that the files of a folder
// give a token, 0 if they do not say what all tokens are.
func tokenizerSize(folder string, c *config) (n int, err error) {
	var t tokens
	if known, err := t.folder(folder); err != nil || !known {
		return 0, err
	}
	return max(t.n, c.tokens), nil
}

// Tokens returns the text of each token of a model, by its id, as the tokenizer has
// it: pieces, in which Ġ or ▁ most often stands for a space. The source is the folder
// of a model, a tokenizer.json, a tokenizer.model of sentencepiece, or a GGUF file,
// FILE.gguf. It reads the whole file, tens of megabytes for large vocabularies. An
// error names the file, what was found and what was expected.
func Tokens(source string) (map[uint32]string, error) {
	t := tokens{texts: map[uint32]string{}}
	info, err := os.Stat(source)
	switch {
	case err == nil && info.IsDir():
		known, err := t.folder(source)
		if err == nil && !known {
			err = fail(source, "tokens", "found a folder without %s and %s, expected one of them", tokenizerFile, piecesFile)
		}
		if err != nil {
			return nil, err
		}
	case filepath.Ext(source) == ".gguf":
		if err := t.gguf(source); err != nil {
			return nil, err
		}
	default:
		parse := t.tokenizerJSON
		if filepath.Ext(source) == filepath.Ext(piecesFile) {
			parse = func(data []byte) error {
				if !t.pieces(data) {
					return errors.New("found another kind of file, expected a model of sentencepiece")
				}
				return nil
			}
		}
		if _, err := readTokens(source, parse); err != nil {
			return nil, err
		}
	}
	return t.texts, nil
}

// readTokens calls parse with the bytes of a file, if it is there.
func readTokens(path string, parse func(data []byte) error) (found bool, err error) {
	err = tensorfile.Parse(path, func(data []byte) error {
		if err := parse(data); err != nil {
			return fail(path, "tokens", "%w", err)
		}
		return nil
	})
	return err == nil, err
}

// folder reads the tokens of a folder, and reports whether its files say what all
// tokens are. The forms are defined by the tokenizers library,
// https://huggingface.co/docs/tokenizers, by transformers, and by sentencepiece's
// sentencepiece_model.proto.
func (t *tokens) folder(folder string) (known bool, err error) {
	read := func(name string, parse func(data []byte) error) (found bool, err error) {
		found, err = readTokens(filepath.Join(folder, name), parse)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return found, err
	}
	custom := false
	if _, err := read(tokenizerConfigFile, func(data []byte) (err error) {
		custom, err = t.tokenizerConfig(data)
		return err
	}); err != nil {
		return false, err
	}
	if _, err := read(addedTokensFile, t.addedTokens); err != nil {
		return false, err
	}
	known, err = read(tokenizerFile, t.tokenizerJSON)
	if err == nil && !known && !custom {
		// What is no model of sentencepiece says nothing: other tokenizers have files
		// of this name, too.
		_, err = read(piecesFile, func(data []byte) error {
			known = t.pieces(data)
			return nil
		})
	}
	return known, err
}

// gguf reads the tokens of a GGUF file.
func (t *tokens) gguf(path string) error {
	f, err := tensorfile.OpenFile(path, func(key []byte) bool { return string(key) == ggufTokens })
	if err != nil {
		return err
	}
	if f == nil || !f.IsGGUF() {
		return fail(path, "file", "found another kind of file, expected a GGUF file")
	}
	defer f.Close()
	found, err := f.Strings(ggufTokens, t.add)
	if err == nil && !found {
		err = fail(path, "metadata", "found no %s, expected the tokens", ggufTokens)
	}
	return err
}

// tokenizerJSON reads a tokenizer.json: its model's vocabulary, an object of ids or
// a list of pieces, and the added tokens.
func (t *tokens) tokenizerJSON(data []byte) error {
	s := jsonscan.New(data)
	found := false
	err := s.Object(func(name []byte) error {
		switch string(name) {
		case "added_tokens":
			return s.Array(func() error { return t.addedToken(s, -1) })
		case "model":
			return s.Object(func(name []byte) error {
				if string(name) != "vocab" {
					return s.Skip()
				}
				found = true
				if s.Kind() == '[' {
					return t.list(s)
				}
				return t.object(s)
			})
		}
		return s.Skip()
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && !found {
		err = errors.New("found no vocabulary in the model, expected one")
	}
	return err
}

// list reads a list of pieces, whose places are their ids. A piece is a list, which
// begins with its text.
func (t *tokens) list(s *jsonscan.Scanner) error {
	id := 0
	return s.Array(func() error {
		var text []byte
		defer func() {
			t.add(id, text)
			id++
		}()
		if s.Kind() != '[' {
			return s.Skip()
		}
		first := true
		return s.Array(func() (err error) {
			if first && s.Kind() == '"' {
				text, err = s.Bytes()
			} else {
				err = s.Skip()
			}
			first = false
			return err
		})
	})
}

// object reads an object of texts and their ids.
func (t *tokens) object(s *jsonscan.Scanner) error {
	return s.Object(func(text []byte) error {
		id, err := readID(s)
		if err == nil {
			t.add(id, text)
		}
		return err
	})
}

// addedToken reads an object with the text of a token and with its id, unless that is known
// already, from 0 on.
func (t *tokens) addedToken(s *jsonscan.Scanner, id int) error {
	known, special := id >= 0, false
	var text []byte
	err := s.Object(func(name []byte) (err error) {
		switch field := string(name); {
		case field == "id" && !known:
			id, err = readID(s)
		case field == "content" && s.Kind() == '"':
			text, err = s.Bytes()
		case field == "special":
			special, _, err = s.Bool()
		default:
			err = s.Skip()
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
func readID(s *jsonscan.Scanner) (int, error) {
	x, err := s.Int()
	if err == nil && (x < 0 || uint64(x) > largestID) {
		err = fmt.Errorf("found the id %d, expected 0 to %d", x, uint32(math.MaxUint32)-1)
	}
	return x, err
}

// tokenizerConfig reads of a tokenizer_config.json the added tokens, and whether the
// tokenizer is code of the model's own, which may add others.
func (t *tokens) tokenizerConfig(data []byte) (custom bool, err error) {
	s := jsonscan.New(data)
	err = s.Object(func(name []byte) error {
		switch string(name) {
		case "auto_map":
			custom = s.Kind() != 'n'
		case "added_tokens_decoder":
			return s.Object(func(name []byte) error {
				id, err := strconv.ParseUint(string(name), 10, 32)
				if err != nil {
					return fmt.Errorf("found %s in added_tokens_decoder, expected an id", tensorfile.Label(string(name)))
				}
				id = min(id, largestID)
				if s.Kind() != '{' {
					t.add(int(id), nil)
					return s.Skip()
				}
				return t.addedToken(s, int(id))
			})
		}
		return s.Skip()
	})
	if err == nil {
		err = s.End()
	}
	return custom, err
}

// addedTokens reads an added_tokens.json, an object of ids.
func (t *tokens) addedTokens(data []byte) error {
	s := jsonscan.New(data)
	err := t.object(s)
	if err == nil {
		err = s.End()
	}
	return err
}

// pieces reads a sentencepiece model, a message of protocol buffers whose field 1 they
// are, each a message whose field 1 is its text. It reports false for what is no such
// message, of which nothing is kept.
func (t *tokens) pieces(data []byte) bool {
	if !eachField(data, func(int, []byte, uint64) {}) {
		return false
	}
	id := 0
	eachField(data, func(field int, piece []byte, _ uint64) {
		if field != modelPieces || piece == nil {
			return
		}
		var text []byte
		eachField(piece, func(field int, value []byte, kind uint64) {
			switch {
			case field == pieceText && value != nil:
				text = value
			case field == pieceType && value == nil && (kind == unknownPiece || kind == controlPiece):
				t.specials = append(t.specials, uint32(id))
			}
		})
		t.add(id, text)
		id++
	})
	return id > 0
}

// Fields of sentencepiece's messages: the pieces of a model, and the text and the type of
// a piece.
const (
	modelPieces = 1
	pieceText   = 1
	pieceType   = 3
)

// Types of pieces.
const (
	unknownPiece = 2
	controlPiece = 3
)

// eachField calls f for each field of a message of protocol buffers: with the bytes of
// one that has a length, else with nil and the number of a varint. It returns false for
// what is no such message.
func eachField(data []byte, f func(field int, value []byte, number uint64)) bool {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
			return false
		}
		data = data[n:]
		field := int(tag >> 3)
		switch tag & 7 {
		case 0:
			x, n := binary.Uvarint(data)
			if n <= 0 {
				return false
			}
			f(field, nil, x)
			data = data[n:]
		case 1, 5:
			size := 8
			if tag&7 == 5 {
				size = 4
			}
			if size > len(data) {
				return false
			}
			data = data[size:]
		case 2:
			length, n := binary.Uvarint(data)
			if n <= 0 || length > uint64(len(data)-n) {
				return false
			}
			f(field, data[n:n+int(length):n+int(length)], 0)
			data = data[n+int(length):]
		default:
			return false
		}
	}
	return true
}
