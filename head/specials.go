package head

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
