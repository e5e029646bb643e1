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

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// specials means the special tokens of the model that --head names.
const specials = "specials"

// suppressed means the tokens that the model that --head names forbids.
const suppressed = "suppressed"

// alwaysPart is a part of --always, the labels at the start of every list, or a part of --ban or
// --allow: an id, a file, the special tokens, or the tokens that the model forbids.
type alwaysPart struct {
	id         int
	file       string
	specials   bool
	suppressed bool
}

func parseAlways(s string) (parts []alwaysPart, err error) { return parseLabels(s, specials) }

// parseEdits is parseAlways with one word more.
func parseEdits(s string) (parts []alwaysPart, err error) {
	return parseLabels(s, specials+" or "+suppressed)
}

func parseLabels(s, words string) (parts []alwaysPart, err error) {
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		file, named := strings.CutPrefix(part, "@")
		id, err := parseWhole(part, 0)
		switch {
		case part == specials:
			parts = append(parts, alwaysPart{specials: true})
		case part == suppressed && strings.HasSuffix(words, suppressed):
			parts = append(parts, alwaysPart{suppressed: true})
		case named && file != "":
			parts = append(parts, alwaysPart{file: file})
		case err == nil:
			parts = append(parts, alwaysPart{id: id})
		default:
			return nil, errors.New("expected whole numbers, at least 0, @FILE or " + words + ", with commas between them")
		}
	}
	return parts, nil
}

// leastAlways is the number of labels that are surely there, before files are read.
func leastAlways(parts []alwaysPart) int {
	ids := map[int]bool{}
	for _, p := range parts {
		if p.file == "" && !p.specials && !p.suppressed {
			ids[p.id] = true
		}
	}
	return len(ids)
}

// readAlways returns the labels as rows of the layer, ascending and each once. An id that the layer
// does not have is an error, but special tokens without a row are left out.
func (f *flags) readAlways(ctx context.Context, flag string, parts []alwaysPart, l *layer) (rows []uint32, err error) {
	ids, of := l.head.IDs(), map[uint32]int{}
	for row, id := range ids {
		of[id] = row
	}
	for _, p := range parts {
		list, from := []uint32{uint32(p.id)}, flag
		switch {
		case (p.specials || p.suppressed) && *f.inputs.head == "":
			word := specials
			if p.suppressed {
				word = suppressed
			}
			return nil, f.wrongUse("%s %s is for --head", flag, word)
		case p.suppressed:
			list = l.head.Suppressed()
		case p.specials:
			list, err = heads.Specials(*f.inputs.head)
		case p.file != "":
			from = flag + " @" + p.file
			list, err = readIDs(ctx, p.file)
		case int64(p.id) > maxID:
			err = fmt.Errorf("%s: found %d labels, expected more than %d, an id of %s", l.name, l.Labels(), p.id, flag)
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
			case p.specials, p.suppressed, flag == banFlag && ids != nil: // a token without a row is in no answer
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

// banFlag and allowFlag are the flags of the labels that may not be answered, and of the only
// labels that may.
const (
	banFlag   = "--ban"
	allowFlag = "--allow"
)

// edits are the flags that ban and allow labels.
type edits struct{ ban, allow *[]alwaysPart }

func (f *flags) edits() edits {
	list := func(name string) *[]alwaysPart { return custom(f, strings.TrimPrefix(name, "--"), nil, parseEdits) }
	return edits{list(banFlag), list(allowFlag)}
}

// check refuses edits that leave no label.
func (e edits) check(l *layer, req *l2s.Request) error {
	for id := range uint32(l.Labels()) {
		if permits(req, id) {
			return nil
		}
	}
	given := banFlag
	if *e.allow != nil {
		given = allowFlag
		if *e.ban != nil {
			given += " and " + banFlag
		}
	}
	return fmt.Errorf("%s: found no label that may be answered, expected one at least: see %s", l.name, given)
}

// apply sets the bans and the allowed labels of a request from the flags.
func (e edits) apply(ctx context.Context, f *flags, l *layer, req *l2s.Request) error {
	for _, x := range []struct {
		flag  string
		parts []alwaysPart
		set   **bitset.Set
	}{{banFlag, *e.ban, &req.Banned}, {allowFlag, *e.allow, &req.Allowed}} {
		if x.parts == nil {
			continue
		}
		rows, err := f.readAlways(ctx, x.flag, x.parts, l)
		if err != nil {
			return err
		}
		if *x.set, err = bitset.FromIDs(l.Labels(), rows); err != nil {
			return err
		}
	}
	return e.check(l, req)
}

const (
	maxIDsText = 64 << 20  // bounds the text of a file of labels: a device has no end
	maxID      = 1<<32 - 2 // the largest id that a label can have
)

// readIDs reads labels from a file: a tensor of integers, as --ids takes it, or text
// with ids between spaces, commas or ends of lines.
func readIDs(ctx context.Context, source string) ([]uint32, error) {
	if path, _, _ := tensorfile.SplitSource(source); tensorfile.Extension(path) != "" {
		return heads.ReadIDs(source)
	}
	file, err := loading(ctx, os.Open, source)
	if err != nil {
		return nil, err
	}
	r := reading(ctx, file)
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
