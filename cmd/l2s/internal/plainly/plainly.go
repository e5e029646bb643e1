// Package plainly makes the command say in one line that L2S_SIMD asks for a
// level that this machine lacks. A program that uses the library panics then.
//
// That is found out while packages are initialised, before main. This one is
// initialised before the one that finds it out: it imports no more than that one
// does, and of packages that could be initialised Go takes the first by import
// path.
package plainly

import (
	"fmt"
	"os"

	"github.com/learning-to-screen/l2s/internal/simd/refuse"
)

func init() {
	refuse.Level = func(err error) {
		fmt.Fprintf(os.Stderr, "l2s: %v\n", err)
		os.Exit(2)
	}
}
