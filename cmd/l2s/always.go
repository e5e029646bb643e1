package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// specials stands for the special tokens of the model that --head names.
const specials = "specials"

// alwaysFlag is --always: labels that every list begins with, from several places.
type alwaysFlag struct {
	f     *flags
	parts *[]alwaysPart
}

// alwaysPart is one of: an id, a file, the special tokens.
type alwaysPart struct {
	id       int
	file     string
	specials bool
}

// always adds the flag --always.
func (f *flags) always() alwaysFlag {
	return alwaysFlag{f, custom(f, "always", nil, "", "labels of every list, a `LIST` of ids, specials, @FILE and @\"FILE,WITH,COMMAS\"", func(s string) (parts []alwaysPart, err error) {
		for _, part := range splitQuoted(s) {
			part = strings.TrimSpace(part)
			if part == specials {
				parts = append(parts, alwaysPart{specials: true})
				continue
			}
			if file, ok := strings.CutPrefix(part, "@"); ok && strings.Trim(file, `"`) != "" {
				parts = append(parts, alwaysPart{file: strings.Trim(file, `"`)})
				continue
			}
			id, err := parseWhole(part, 0)
			if err != nil {
				return nil, fmt.Errorf("expected whole numbers, at least 0, @FILE or specials, with commas between them; a name with a comma is @\"a,b\"")
			}
			parts = append(parts, alwaysPart{id: id})
		}
		return parts, nil
	})}
}

// splitQuoted splits at the commas that are not between double quotes.
func splitQuoted(s string) (parts []string) {
	quoted, from := false, 0
	for i, r := range s {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ',' && !quoted:
			parts, from = append(parts, s[from:i]), i+1
		}
	}
	return append(parts, s[from:])
}

// files are those that the labels are read from.
func (a alwaysFlag) files() (files []string) {
	for _, p := range *a.parts {
		if p.file != "" {
			files = append(files, p.file)
		}
	}
	return files
}

// least is the number of labels that are surely there, as far as is known before files
// are read.
func (a alwaysFlag) least() int {
	var ids []int
	for _, p := range *a.parts {
		if p.file == "" && !p.specials {
			ids = append(ids, p.id)
		}
	}
	slices.Sort(ids)
	return len(slices.Compact(ids))
}

// read returns the labels as rows of the layer, ascending and each once. An id that the
// layer does not have is an error, but of the special tokens those without a row are
// left out.
func (a alwaysFlag) read(ctx context.Context, l *layer) ([]uint32, error) {
	var rows []uint32
	ids := l.ids()
	of := map[uint32]int{}
	for row, id := range ids {
		of[id] = row
	}
	// rowOf returns the row of a label, and false where there is none.
	rowOf := func(id uint32) (uint32, bool) {
		if ids != nil {
			row, ok := of[id]
			return uint32(row), ok
		}
		return id, int64(id) < int64(l.Labels())
	}
	for _, p := range *a.parts {
		list, from := []uint32{uint32(p.id)}, "--always"
		switch {
		case p.specials:
			found, err := a.specials()
			if err != nil {
				return nil, err
			}
			for _, id := range found {
				if row, ok := rowOf(id); ok {
					rows = append(rows, row)
				}
			}
			continue
		case p.file != "":
			from = "--always @" + p.file
			var err error
			if list, err = readIDs(ctx, p.file); err != nil {
				return nil, err
			}
		case int64(p.id) > maxID:
			return nil, fmt.Errorf("%s: found %d labels, expected more than %d, an id of --always", l.name, l.Labels(), p.id)
		}
		for _, id := range list {
			row, ok := rowOf(id)
			switch {
			case !ok && ids != nil:
				return nil, fmt.Errorf("%s: found no label %d in the draft head, expected it for %s", l.name, id, from)
			case !ok:
				return nil, fmt.Errorf("%s: found %d labels, expected more than %d, an id of %s", l.name, l.Labels(), id, from)
			}
			rows = append(rows, row)
		}
	}
	slices.Sort(rows)
	return slices.Compact(rows), nil
}

// specials are the special tokens of --head.
func (a alwaysFlag) specials() ([]uint32, error) {
	model := a.f.set.Lookup("head").Value.(*value[string])
	if *model.to == "" {
		return nil, a.f.wrongUse("--always specials is for --head")
	}
	return head.Specials(*model.to)
}

// maxIDsText bounds the text of a file of labels: a device has no end.
const maxIDsText = 64 << 20

// maxID is the largest id that a label can have.
const maxID = 1<<32 - 2

// readIDs reads labels from a file: a tensor of integers, as --ids takes it, or text
// with ids between spaces, commas or ends of lines.
func readIDs(ctx context.Context, source string) ([]uint32, error) {
	if path, _, _ := tensorfile.SplitSource(source); tensorfile.Extension(path) != "" {
		return head.ReadIDs(source)
	}
	file, err := openInput(ctx, source)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxIDsText+1))
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
