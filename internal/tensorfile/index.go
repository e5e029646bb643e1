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
func ReadIndex(path string) (files map[string]string, err error) {
	err = Parse(path, func(data []byte) (err error) {
		files, err = parseIndex(data, path)
		return err
	})
	return files, err
}

func parseIndex(data []byte, path string) (map[string]string, error) {
	var files map[string]string
	names := map[string]string{} // the same file is the same string
	s := jsonscan.New(data)
	err := s.Object(func(key []byte) error {
		if string(key) != "weight_map" {
			return s.Skip()
		}
		if files != nil {
			return fmt.Errorf("weight_map: found it twice, expected it once")
		}
		files = map[string]string{}
		return s.Object(func(tensor []byte) error {
			name := string(tensor)
			if _, twice := files[name]; twice {
				return fmt.Errorf("weight_map: found %s twice, expected once", label(name))
			}
			file, err := s.Bytes()
			if err != nil {
				return err
			}
			known, ok := names[string(file)]
			if !ok {
				if known = string(file); !plainName(known) {
					return fmt.Errorf("weight_map: found the file %s, expected the name of a file in the same folder", label(known))
				}
				if len(names) == maxShards {
					return fmt.Errorf("weight_map: found more than %d files, expected at most so many", maxShards)
				}
				names[known] = known
			}
			files[name] = known
			return nil
		})
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && files == nil {
		err = fmt.Errorf("weight_map: found none, expected the file of each tensor")
	}
	if err != nil {
		return nil, fail(path, "index", "%w", err)
	}
	return files, nil
}

// plainName reports whether name names a file in a folder on every system, and leads
// nowhere else.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\:\x00")
}
