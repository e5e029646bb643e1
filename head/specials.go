package head

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/learning-to-screen/l2s/internal/jsonscan"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// generationConfigFile names tokens, too: more than one may end a text.
const generationConfigFile = "generation_config.json"

// Specials returns the ids of the special tokens of a model as Hugging Face lays it
// out, such as those that begin and end a text, ascending and each once. source is its
// folder, or FOLDER:tensor. They are those that config.json and generation_config.json
// name in fields that end in _token_id, the added tokens that tokenizer.json and
// tokenizer_config.json call special, and the pieces of a sentencepiece
// tokenizer.model for what is unknown and for control, unless there is a
// tokenizer.json. Files that are not there name none; config.json must be there.
//
// Ids need not have a row in the head. An error names the file; that there is no
// special token is one.
func Specials(source string) ([]uint32, error) {
	path, _, _ := tensorfile.SplitSource(source)
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fail(path, "special tokens", "found a file, expected the folder of a model")
	}
	var ids []uint32
	for _, name := range []string{configFile, generationConfigFile} {
		c, err := readConfig(filepath.Join(path, name))
		if errors.Is(err, fs.ErrNotExist) && name == generationConfigFile {
			continue
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, c.specials...)
	}
	inJSON := false
	for _, file := range []struct {
		name  string
		parse func(data []byte, add func(id int)) error
	}{{tokenizerFile, specialsOfTokenizer}, {tokenizerConfigFile, specialsOfConfig}, {piecesFile, specialPieces}} {
		if file.name == piecesFile && inJSON {
			continue
		}
		where := filepath.Join(path, file.name)
		err := tensorfile.Parse(where, func(data []byte) error {
			if err := file.parse(data, func(id int) { ids = append(ids, uint32(id)) }); err != nil {
				return fail(where, "special tokens", "%w", err)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		inJSON = inJSON || file.name == tokenizerFile && err == nil
	}
	if len(ids) == 0 {
		return nil, fail(path, "special tokens", "found none, expected some in %s or the files of the tokenizer", configFile)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// specialsOfTokenizer reads a tokenizer.json.
func specialsOfTokenizer(data []byte, add func(id int)) error {
	s := jsonscan.New(data)
	err := s.Object(func(name []byte) error {
		if string(name) != "added_tokens" {
			return s.Skip()
		}
		return s.Array(func() error {
			id, special := -1, false
			err := s.Object(func(name []byte) (err error) {
				switch string(name) {
				case "id":
					id, err = readID(s)
					return err
				case "special":
					special, _, err = s.Bool()
					return err
				}
				return s.Skip()
			})
			if special && id >= 0 {
				add(id)
			}
			return err
		})
	})
	if err == nil {
		err = s.End()
	}
	return err
}

// specialsOfConfig reads a tokenizer_config.json.
func specialsOfConfig(data []byte, add func(id int)) error {
	s := jsonscan.New(data)
	err := s.Object(func(name []byte) error {
		if string(name) != "added_tokens_decoder" {
			return s.Skip()
		}
		return s.Object(func(name []byte) error {
			key, special := string(name), false
			if err := s.Object(func(name []byte) (err error) {
				if string(name) != "special" {
					return s.Skip()
				}
				special, _, err = s.Bool()
				return err
			}); err != nil {
				return err
			}
			x, err := strconv.ParseUint(key, 10, 31)
			if err != nil {
				return fmt.Errorf("found %s in added_tokens_decoder, expected an id", tensorfile.Label(key))
			}
			if special {
				add(int(x))
			}
			return nil
		})
	})
	if err == nil {
		err = s.End()
	}
	return err
}

// specialPieces reads a tokenizer.model of sentencepiece. A file that is not one names no piece:
// other tokenizers have files of this name, too.
func specialPieces(data []byte, add func(id int)) error {
	const unknown, control = 2, 3
	var found []int
	pieces := 0
	if eachField(data, func(field int, piece []byte, _ uint64) {
		if field != modelPieces || piece == nil {
			return
		}
		eachField(piece, func(field int, value []byte, kind uint64) {
			if field == pieceType && value == nil && (kind == unknown || kind == control) {
				found = append(found, pieces)
			}
		})
		pieces++
	}) {
		for _, id := range found {
			add(id)
		}
	}
	return nil
}
