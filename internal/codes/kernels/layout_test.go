//go:build amd64 || arm64

package kernels

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The comments of the generated functions give the places of the fields of their argument b. The
// generator makes them from the same numbers as the instructions.
func TestAssemblyFindsTheFieldsOfStructs(t *testing.T) {
	files, err := filepath.Glob("../../../kernels/asm/*.s")
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?m)^// func (\w+)\(.*\bb \*byte\)\n// Requires: .*\nTEXT .*\n\s*// (.*)$`)
	layout := regexp.MustCompile(`b is a kernels\.(bound|batchBound|blockBound): (.*)\.$`)
	structs := map[string]reflect.Type{"bound": reflect.TypeFor[bound](), "batchBound": reflect.TypeFor[batchBound](), "blockBound": reflect.TypeFor[blockBound]()}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range function.FindAllStringSubmatch(string(text), -1) {
			found++
			m := layout.FindStringSubmatch(f[2])
			if m == nil {
				t.Errorf("%s: %s does not give the places of the fields of b", file, f[1])
				continue
			}
			for _, place := range strings.Split(m[2], ", ") {
				name, at, _ := strings.Cut(place, " at ")
				field, ok := structs[m[1]].FieldByName(name)
				if !ok || strconv.Itoa(int(field.Offset)) != at {
					t.Errorf("%s: %s looks for %s at %s; found it at %d (%v)", file, f[1], name, at, field.Offset, ok)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no function that reads a bound is found")
	}
}
