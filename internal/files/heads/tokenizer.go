package heads

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
)

// tokens describes a tokenizer's tokens: the number of ids, and, if they are kept, their texts. The
// memory follows the size of the file, for any ids.
type tokens struct {
	n     int64             // one more than the largest id
	texts map[uint32]string // nil if they are not kept

	specials     []uint32 // the ids of the tokens that their files call special
	onlySpecials bool     // files that call none special are not read

	vocabulary, pieces bool // a tokenizer.json has one; there is a model of sentencepiece
	custom             bool // code of the model's own may add tokens

	// For a vocab.json: special tokens of other files that have no id in any file get ids after its
	// last one.
	python bool
	named  map[string]bool
}

// add notes the token of an id, which is from 0 to largestID.
func (t *tokens) add(id int64, text []byte) {
	t.n = max(t.n, id+1)
	delete(t.named, string(text))
	if t.texts != nil {
		t.texts[uint32(id)] = string(text)
	}
}

// largestID is the largest id that a token may have.
const largestID = math.MaxUint32 - 1

// tokenizerSize returns one more than the largest id that the files of a folder
// give a token, 0 if they do not list all tokens.
func tokenizerSize(folder string, c *config) (n int, err error) {
	var t tokens
	if known, err := t.folder(folder); err != nil || !known {
		return c.unpadded, err
	}
	n = max(int(min(t.n, math.MaxInt)), c.tokens)
	if c.unpadded > 0 {
		n = min(n, c.unpadded)
	}
	return n, nil
}

// Tokens is l2s.Tokens of a tokenizer.
func Tokens(source string) (map[uint32]string, error) {
	t := tokens{texts: map[uint32]string{}}
	info, err := os.Stat(source)
	kind := notTokens
	if err == nil && !info.IsDir() {
		kind, err = kindOfTokens(source)
	}
	switch {
	case err != nil:
	case info.IsDir():
		var known bool
		if known, err = t.folder(source); err == nil && !known {
			err = fail(source, "tokens", "found a folder without %s and %s, expected one of them", tokenizerFile, piecesFile)
		}
	case kind == ggufTokensFile:
		err = t.gguf(source)
	case kind == jsonTokens:
		err = readTokens(source, inJSON(t.anyJSON))
	default:
		if err = readTokens(source, t.sentencepiece); err == nil && !t.pieces {
			err = fail(source, "tokens", "found another kind of file, expected a model of sentencepiece, a tokenizer.json, a vocab.json or a GGUF file")
		}
	}
	if err != nil {
		return nil, err
	}
	return t.texts, nil
}

// Kinds of files that have tokens.
const (
	notTokens = iota
	jsonTokens
	piecesTokens
	ggufTokensFile
)

// kindOfTokens tells by the first bytes of a file the kind of its tokens.
func kindOfTokens(path string) (int, error) {
	start, err := tensorfile.Start(path, 64)
	if err != nil {
		return notTokens, err
	}
	text := bytes.TrimLeft(start, " \t\r\n\ufeff")
	switch {
	case bytes.HasPrefix(start, []byte("GGUF")):
		return ggufTokensFile, nil
	case bytes.HasPrefix(text, []byte("{")) && bytes.IndexByte([]byte("\"}"), append(bytes.TrimLeft(text[1:], " \t\r\n"), 0)[0]) >= 0:
		return jsonTokens, nil
	case len(start) > 2 && start[0] == modelPiece && start[1] < 0x80 && start[2] == pieceText: // no text has a piece after a length
		return piecesTokens, nil
	}
	return notTokens, nil
}

// IsTokenizer reports whether Tokens knows the format of a source.
func IsTokenizer(source string) bool {
	if info, err := os.Stat(source); err != nil || info.IsDir() {
		return err == nil
	}
	kind, err := kindOfTokens(source)
	return err == nil && kind != notTokens
}

// maxTokenizer bounds the memory for a file that is no tokenizer: one has seldom more than some tens
// of megabytes.
const maxTokenizer = 256 << 20

// readTokens calls parse with the bytes of a file.
func readTokens(path string, parse func(data []byte) error) error {
	// Parsers take several times the size of the file.
	if info, err := os.Stat(path); err == nil && info.Size() > maxTokenizer {
		return fail(path, "size", "found %d bytes, expected a tokenizer, of at most %d", info.Size(), maxTokenizer)
	}
	data, err := tensorfile.ReadFile(path)
	if err != nil {
		return err
	}
	if err := parse(data); err != nil {
		return fail(path, "tokens", "%w", err)
	}
	return nil
}

// inJSON returns the parser of the value of a file of JSON.
func inJSON(parse func(v jsonscan.Value) error) func(data []byte) error {
	return func(data []byte) error {
		v, err := jsonscan.ParsePython(data)
		if err == nil {
			err = parse(v)
		}
		return err
	}
}

// folder reads the tokens of a folder, and reports whether its files list all tokens. The forms are
// defined by the tokenizers library, https://huggingface.co/docs/tokenizers, by transformers, and
// by sentencepiece's sentencepiece_model.proto.
func (t *tokens) folder(folder string) (known bool, err error) {
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, name))
		return err == nil
	}
	if !exists(tokenizerFile) { // before any file gives a token an id; a file that cannot be read names none
		for _, name := range []string{specialTokensFile, tokenizerConfigFile} {
			_ = readTokens(filepath.Join(folder, name), inJSON(t.namedTokens))
		}
	}
	for _, file := range []struct {
		name  string
		parse func(data []byte) error
	}{
		{tokenizerConfigFile, inJSON(t.tokenizerConfig)},
		{addedTokensFile, inJSON(t.object)},
		{tokenizerFile, inJSON(t.tokenizerJSON)},
		// A file that is no model of sentencepiece has no tokens: other tokenizers have files
		// of this name, too.
		{piecesFile, t.sentencepiece},
		{vocabularyFile, inJSON(t.vocabJSON)},
	} {
		switch file.name {
		case piecesFile:
			if t.vocabulary {
				continue
			}
		case addedTokensFile:
			if t.onlySpecials {
				continue
			}
		case vocabularyFile:
			if t.vocabulary || t.pieces || t.onlySpecials || t.custom || !exists(mergesFile) && !exists(sourceFile) {
				continue
			}
		}
		if err := readTokens(filepath.Join(folder, file.name), file.parse); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	if t.python { // the tokenizer adds them when it is made
		t.n += int64(len(t.named))
	}
	return t.vocabulary || t.pieces && !t.custom, nil
}

// gguf reads the tokens of a GGUF file.
func (t *tokens) gguf(path string) error {
	s, err := openGGUF(path)
	if err != nil {
		return err
	}
	defer s.Close()
	found, err := s.saying(ggufTokens).Strings(ggufTokens, func(i int, text []byte) { t.add(int64(i), text) })
	if err == nil && !found {
		err = fail(path, "metadata", "found no %s, expected the tokens", ggufTokens)
	}
	return err
}

// tokenizerJSON reads a tokenizer.json: its model's vocabulary, an object of ids or
// a list of pieces, and the added tokens.
func (t *tokens) tokenizerJSON(v jsonscan.Value) error {
	err := v.Entries(func(name []byte, v jsonscan.Value) error {
		switch string(name) {
		case "added_tokens":
			return v.Array(func(v jsonscan.Value) error { return t.addedToken(v, -1) })
		case "model":
			return v.Entries(func(name []byte, v jsonscan.Value) error {
				if string(name) != "vocab" {
					return nil
				}
				t.vocabulary = true
				if v[0] == '[' {
					return t.list(v)
				}
				return t.object(v)
			})
		}
		return nil
	})
	if err == nil && !t.vocabulary {
		err = errors.New("found no vocabulary in the model, expected one")
	}
	return err
}

// anyJSON reads a tokenizer.json, or the object of a vocab.json.
func (t *tokens) anyJSON(v jsonscan.Value) error {
	plain := v[0] == '{'
	if plain {
		_ = v.Entries(func(name []byte, v jsonscan.Value) error {
			plain = plain && v[0] != '{' && v[0] != '['
			return nil
		})
	}
	if plain {
		if err := t.vocabJSON(v); t.vocabulary {
			return err
		}
	}
	return t.tokenizerJSON(v)
}

// vocabJSON reads the vocab.json of a tokenizer in Python, an object of ids. Any other
// file has no tokens: other tokenizers have files of this name, too.
func (t *tokens) vocabJSON(v jsonscan.Value) error {
	none := v[0] != '{'
	if !none {
		none = true
		if v.Entries(func(_ []byte, v jsonscan.Value) error {
			none = false
			_, err := readID(v)
			return err
		}) != nil {
			return nil
		}
	}
	if none {
		return nil
	}
	t.vocabulary, t.python = true, true
	return t.object(v)
}

// namedTokens notes the special tokens that a special_tokens_map.json names, without their ids.
func (t *tokens) namedTokens(v jsonscan.Value) error {
	note := func(v jsonscan.Value) error {
		if v[0] == '{' {
			return v.Entries(func(name []byte, v jsonscan.Value) error {
				if string(name) == "content" {
					return t.note(v)
				}
				return nil
			})
		}
		return t.note(v)
	}
	return v.Entries(func(name []byte, v jsonscan.Value) error {
		switch {
		case v[0] == '[' && string(name) == "additional_special_tokens":
			return v.Array(note)
		case bytes.HasSuffix(name, []byte("_token")):
			return note(v)
		}
		return nil
	})
}

// note notes a token by its text.
func (t *tokens) note(v jsonscan.Value) error {
	if v[0] != '"' {
		return nil
	}
	text, err := v.Bytes()
	if err == nil && len(text) > 0 {
		if t.named == nil {
			t.named = map[string]bool{}
		}
		t.named[string(text)] = true
	}
	return err
}

// list reads a list of pieces, whose places are their ids. A piece is a list, which
// begins with its text.
func (t *tokens) list(v jsonscan.Value) error {
	id := int64(0)
	return v.Array(func(v jsonscan.Value) (err error) {
		var text []byte
		if v[0] == '[' {
			first := true
			err = v.Array(func(v jsonscan.Value) (err error) {
				if first && v[0] == '"' {
					text, err = v.Bytes()
				}
				first = false
				return err
			})
		}
		t.add(id, text)
		id++
		return err
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
func (t *tokens) tokenizerConfig(v jsonscan.Value) error {
	return v.Entries(func(name []byte, v jsonscan.Value) error {
		switch string(name) {
		case "auto_map":
			t.custom = !v.IsNull()
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

// sentencepiece reads a sentencepiece model, a message of protocol buffers whose field 1 they
// are, each a message whose field 1 is its text. Of any other message nothing is
// found.
func (t *tokens) sentencepiece(data []byte) error {
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
	t.pieces = id > 0
	return nil
}

// Fields of sentencepiece's messages, by their tags, and two types of pieces.
const (
	modelPiece = 1<<3 | 2
	pieceText  = 1<<3 | 2
	pieceType  = 3 << 3

	unknownPiece = 2
	controlPiece = 3
)

// eachField calls f for each field of a message of protocol buffers: with its tag, the bytes of
// one that has a length and the number of a varint. It returns false for any other
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

// Specials returns the ids of the special tokens of a model, such as those that begin and end a
// text, ascending and each once. source is a GGUF file, or the folder of a model in Hugging Face's
// layout, or one of these with the name of a tensor. For a GGUF file they are the tokens that the
// metadata name, and the tokens of the types unknown and control. For a folder they are the tokens
// that config.json and generation_config.json name in fields that end in _token_id, the added
// tokens that tokenizer.json and tokenizer_config.json call special, and, without a tokenizer.json,
// the pieces of a sentencepiece tokenizer.model for unknown and control. A missing file names no
// tokens; config.json is required.
//
// Ids need not have a row in the head. An error names the file; a model without special tokens is
// an error.
func Specials(source string) ([]uint32, error) {
	path, _, _ := tensorfile.SplitSource(source)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var ids []uint32
	if !info.IsDir() {
		if kind, err := kindOfTokens(path); err != nil || kind != ggufTokensFile {
			return nil, cmp.Or(err, fail(path, "special tokens", "found a file, expected the folder of a model, or a GGUF file"))
		}
		s, err := openGGUF(path)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if ids, err = s.specials(); err == nil && len(ids) == 0 {
			err = fail(path, "special tokens", "found none, expected some in the metadata tokenizer.ggml")
		}
		slices.Sort(ids)
		return slices.Compact(ids), err
	}
	for _, name := range []string{configFile, generationConfig} {
		c, err := readConfig(filepath.Join(path, name))
		if errors.Is(err, fs.ErrNotExist) && name == generationConfig {
			continue
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, c.specials...)
	}
	t := tokens{onlySpecials: true}
	if _, err := t.folder(path); err != nil {
		return nil, err
	}
	ids = append(ids, t.specials...)
	if len(ids) == 0 {
		return nil, fail(path, "special tokens", "found none, expected some in %s or the files of the tokenizer", configFile)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
