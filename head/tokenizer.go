package head

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"

	"github.com/learning-to-screen/l2s/internal/jsonscan"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// tokenizerSize returns one more than the largest id that the files of a folder
// give a token, 0 if they do not say what all tokens are. The forms are those of
// the tokenizers library, https://huggingface.co/docs/tokenizers, of transformers,
// and of sentencepiece's sentencepiece_model.proto.
func tokenizerSize(folder string, c *config) (n int, err error) {
	read := func(name string, parse func(data []byte) (int, error)) (found bool, err error) {
		path := filepath.Join(folder, name)
		err = tensorfile.Parse(path, func(data []byte) error {
			size, err := parse(data)
			if err != nil {
				return fail(path, "tokens", "%w", err)
			}
			n = max(n, size)
			return nil
		})
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	custom := false
	if _, err := read(tokenizerConfigFile, func(data []byte) (n int, err error) {
		n, custom, err = tokenizerConfig(data)
		return n, err
	}); err != nil {
		return 0, err
	}
	if _, err := read(addedTokensFile, addedTokens); err != nil {
		return 0, err
	}
	known, err := read(tokenizerFile, tokenizerJSON)
	if err == nil && !known && !custom {
		// What is no model of sentencepiece says nothing: other tokenizers have files
		// of this name, too.
		_, err = read(piecesFile, func(data []byte) (int, error) {
			pieces := countPieces(data)
			known = pieces > 0
			return pieces, nil
		})
	}
	if err != nil || !known {
		return 0, err
	}
	return max(n, c.tokens), nil
}

// tokenizerJSON reads a tokenizer.json: its model's vocabulary, an object of ids or
// a list of pieces, and the added tokens.
func tokenizerJSON(data []byte) (n int, err error) {
	s := jsonscan.New(data)
	found := false
	err = s.Object(func(name []byte) error {
		switch string(name) {
		case "added_tokens":
			return s.Array(func() error {
				return s.Object(func(name []byte) error {
					if string(name) != "id" {
						return s.Skip()
					}
					return id(s, &n)
				})
			})
		case "model":
			return s.Object(func(name []byte) error {
				if string(name) != "vocab" {
					return s.Skip()
				}
				found = true
				if s.Kind() == '[' {
					pieces := 0
					err := s.Array(func() error {
						pieces++
						return s.Skip()
					})
					n = max(n, pieces)
					return err
				}
				return s.Object(func([]byte) error { return id(s, &n) })
			})
		}
		return s.Skip()
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && !found {
		err = fmt.Errorf("found no vocabulary in the model, expected one")
	}
	return n, err
}

// id reads an id and makes n larger than it.
func id(s *jsonscan.Scanner, n *int) error {
	x, err := s.Int()
	if err == nil && (x < 0 || uint64(x) >= math.MaxUint32 || x == math.MaxInt) {
		err = fmt.Errorf("found the id %d, expected 0 to %d", x, uint32(math.MaxUint32)-1)
	}
	if err == nil {
		*n = max(*n, x+1)
	}
	return err
}

// tokenizerConfig reads of a tokenizer_config.json the ids of added tokens, and
// whether the tokenizer is code of the model's own, which may add others.
func tokenizerConfig(data []byte) (n int, custom bool, err error) {
	s := jsonscan.New(data)
	err = s.Object(func(name []byte) error {
		switch string(name) {
		case "auto_map":
			custom = s.Kind() != 'n'
		case "added_tokens_decoder":
			return s.Object(func(name []byte) error {
				x, err := strconv.ParseUint(string(name), 10, 32)
				if err != nil {
					return fmt.Errorf("found %s in added_tokens_decoder, expected an id", tensorfile.Label(string(name)))
				}
				n = max(n, int(min(x, math.MaxUint32-1, math.MaxInt-1))+1)
				return s.Skip()
			})
		}
		return s.Skip()
	})
	if err == nil {
		err = s.End()
	}
	return n, custom, err
}

// addedTokens reads an added_tokens.json, an object of ids.
func addedTokens(data []byte) (n int, err error) {
	s := jsonscan.New(data)
	if err = s.Object(func([]byte) error { return id(s, &n) }); err == nil {
		err = s.End()
	}
	return n, err
}

// countPieces returns the number of pieces of a sentencepiece model, and 0 for what is
// none.
func countPieces(data []byte) (pieces int) {
	if !eachField(data, func(field int, value []byte, _ uint64) {
		if field == modelPieces && value != nil {
			pieces++
		}
	}) {
		return 0
	}
	return pieces
}

// Fields of sentencepiece's messages: the pieces of a model, and the type of a piece.
const (
	modelPieces = 1
	pieceType   = 3
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
