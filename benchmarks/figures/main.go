// Command figures writes the page of figures, docs/figures.md, and its pictures, from the folders of
// results; or figures.md of one folder, into it.
//
//	cd benchmarks && go run ./figures [FOLDER]
package main

import (
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("figures: ")
	var err error
	switch {
	case len(os.Args) == 1:
		err = report.Page("../docs/figures.md", "results", report.Folders("results")...)
	case len(os.Args) == 2 && !strings.HasPrefix(os.Args[1], "-"):
		err = report.Page(filepath.Join(os.Args[1], "figures.md"), "", os.Args[1])
	default:
		log.Fatal("expected a folder of measurements, whose page is written into it, or nothing, for docs/figures.md")
	}
	if err != nil {
		log.Fatal(err)
	}
}
