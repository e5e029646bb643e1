package tensorfile

import (
	"fmt"
	"strings"

	"github.com/learning-to-screen/l2s/internal/jsonscan"
)

// maxShards is the largest number of files of a model. Those of the largest models have
// some hundreds.
const maxShards = 10000

// ReadIndex reads a model.safetensors.index.json: the file of each tensor of a
// model that is cut into several safetensors files, its "weight_map". The files
// are names in the folder of the index: one that could lead elsewhere is refused, and so
// are more than 10,000 files, since who asks for them asks the system for each.
// Format: https://huggingface.co/docs/transformers/big_models#sharded-checkpoints.
func ReadIndex(path string) (map[string]string, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	files, err := parseIndex(data)
	if err != nil {
		return nil, fail(path, "index", "%w", err)
	}
	return files, nil
}

func parseIndex(data []byte) (files map[string]string, err error) {
	v, err := jsonscan.Parse(data)
	if err != nil {
		return nil, err
	}
	err = v.Entries(func(name []byte, value jsonscan.Value) error {
		switch {
		case string(name) != "weight_map":
			return nil
		case files != nil:
			return fmt.Errorf("found %q twice, expected it once", name)
		}
		files = map[string]string{}
		return readMap(value, files)
	})
	if err == nil && files == nil {
		err = fmt.Errorf("weight_map: found none, expected the file of each tensor")
	}
	return files, err
}

func readMap(v jsonscan.Value, files map[string]string) error {
	names := map[string]string{} // the same file is the same string
	return v.Object(func(tensor []byte, value jsonscan.Value) error {
		text, err := value.Bytes()
		if err != nil {
			return err
		}
		file, known := names[string(text)]
		if !known {
			file = string(text)
			switch {
			// What is refused could lead elsewhere on some system.
			case file == "" || file == "." || file == ".." || strings.ContainsAny(file, "/\\:\x00"):
				return fmt.Errorf("weight_map: found the file %s, expected the name of a file in the same folder", Label(file))
			case len(names) == maxShards:
				return fmt.Errorf("weight_map: found more than %d files, expected at most so many", maxShards)
			}
			names[file] = file
		}
		files[string(tensor)] = file
		return nil
	})
}
