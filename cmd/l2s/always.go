package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// specials stands for the special tokens of the model that --head names.
const specials = "specials"

// alwaysPart is a part of --always, the labels that every list begins with: an id, a file, or
// the special tokens.
type alwaysPart struct {
	id       int
	file     string
	specials bool
}

func parseAlways(s string) (parts []alwaysPart, err error) {
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		file, named := strings.CutPrefix(part, "@")
		id, err := parseWhole(part, 0)
		switch {
		case part == specials:
			parts = append(parts, alwaysPart{specials: true})
		case named && file != "":
			parts = append(parts, alwaysPart{file: file})
		case err == nil:
			parts = append(parts, alwaysPart{id: id})
		default:
			return nil, errors.New("expected whole numbers, at least 0, @FILE or specials, with commas between them")
		}
	}
	return parts, nil
}

// leastAlways is the number of labels that are surely there, before files are read.
func leastAlways(parts []alwaysPart) int {
	ids := map[int]bool{}
	for _, p := range parts {
		if p.file == "" && !p.specials {
			ids[p.id] = true
		}
	}
	return len(ids)
}

// readAlways returns the labels as rows of the layer, ascending and each once. An id that the layer
// does not have is an error, but of the special tokens those without a row are left out.
func (f *flags) readAlways(ctx context.Context, parts []alwaysPart, l *layer) (rows []uint32, err error) {
	ids, of := l.head.IDs(), map[uint32]int{}
	for row, id := range ids {
		of[id] = row
	}
	for _, p := range parts {
		list, from := []uint32{uint32(p.id)}, "--always"
		switch {
		case p.specials && *f.inputs.head == "":
			return nil, f.wrongUse("--always specials is for --head")
		case p.specials:
			list, err = head.Specials(*f.inputs.head)
		case p.file != "":
			from = "--always @" + p.file
			list, err = readIDs(ctx, p.file)
		case int64(p.id) > maxID:
			err = fmt.Errorf("%s: found %d labels, expected more than %d, an id of --always", l.name, l.Labels(), p.id)
		}
		if err != nil {
			return nil, err
		}
		for _, id := range list {
			row, ok := int(id), int64(id) < int64(l.Labels())
			if ids != nil {
				row, ok = of[id]
			}
			switch {
			case ok:
				rows = append(rows, uint32(row))
			case p.specials:
			case ids != nil:
				return nil, fmt.Errorf("%s: found no label %d in the draft head, expected it for %s", l.name, id, from)
			default:
				return nil, fmt.Errorf("%s: found %d labels, expected more than %d, an id of %s", l.name, l.Labels(), id, from)
			}
		}
	}
	slices.Sort(rows)
	return slices.Compact(rows), nil
}

const (
	maxIDsText = 64 << 20  // bounds the text of a file of labels: a device has no end
	maxID      = 1<<32 - 2 // the largest id that a label can have
)

// readIDs reads labels from a file: a tensor of integers, as --ids takes it, or text
// with ids between spaces, commas or ends of lines.
func readIDs(ctx context.Context, source string) ([]uint32, error) {
	if path, _, _ := tensorfile.SplitSource(source); tensorfile.Extension(path) != "" {
		return head.ReadIDs(source)
	}
	file, err := loading(ctx, os.Open, source)
	if err != nil {
		return nil, err
	}
	r := reading(ctx, file, nil)
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxIDsText+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxIDsText {
		return nil, fmt.Errorf("%s: labels: found more than %d MiB of text, expected at most that", source, maxIDsText>>20)
	}
	words := strings.FieldsFunc(strings.TrimPrefix(string(text), "\ufeff"), // as editors on Windows write
		func(r rune) bool { return strings.ContainsRune(" ,\t\r\n", r) })
	if len(words) == 0 {
		return nil, fmt.Errorf("%s: labels: found none, expected at least one", source)
	}
	ids := make([]uint32, len(words))
	for i, word := range words {
		id, err := strconv.ParseUint(word, 10, 32)
		if err != nil || id > maxID {
			return nil, fmt.Errorf("%s: labels: found %s at position %d, expected a whole number, 0 to %d", source, tensorfile.Label(word), i, uint32(maxID))
		}
		ids[i] = uint32(id)
	}
	return ids, nil
}
