package labelfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Merge writes to out the labels of a whole corpus from the files of its parts, which may be given
// in any order. The parts must be of the same layer, the same k and a corpus of the same length,
// and hold each of its contexts once. progress, unless nil, gets the number of contexts copied so
// far.
//
// The memory that it takes does not depend on the size of the files. If it fails, out keeps its old
// state.
func Merge(ctx context.Context, out string, parts []string, progress func(done int)) (Header, error) {
	if len(parts) == 0 {
		return Header{}, errors.New("parts: found none, expected at least one")
	}
	files := make([]*File, len(parts))
	for i, path := range parts {
		f, err := Open(path)
		if err != nil {
			return Header{}, err
		}
		f.Close() // the system bounds the number of open files
		files[i] = f
	}
	if err := checkParts(files); err != nil {
		return Header{}, err
	}
	h := files[0].Header
	h.First, h.Count = 0, h.Total
	w, err := Create(out, h)
	if err != nil {
		return Header{}, err
	}
	defer w.Abort()
	for _, p := range files {
		if err := w.appendPart(ctx, p, progress); err != nil {
			return Header{}, err
		}
	}
	return w.Header(), w.Commit()
}

// appendPart opens a part again and appends its labels.
func (w *Writer) appendPart(ctx context.Context, p *File, progress func(done int)) error {
	f, err := Open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Header != p.Header {
		return fmt.Errorf("%s: found other labels than before, expected it to stay as it is while it is merged", p.path)
	}
	w.header.Contexts.Add(p.Contexts)
	return f.Each(ctx, func(labels []uint32) error {
		if err := w.Write(labels, Digest{}); err != nil {
			return err
		}
		if progress != nil {
			progress(w.rows)
		}
		return nil
	})
}

// checkParts sorts the parts by their first context and returns an error
// unless they make a whole.
func checkParts(parts []*File) error {
	a := parts[0]
	for _, p := range parts {
		for _, field := range []struct {
			name        string
			found, want int
		}{
			{"k", p.K, a.K}, {"labels", p.Labels, a.Labels}, {"dim", p.Dim, a.Dim}, {"contexts of the corpus", p.Total, a.Total},
		} {
			if field.found != field.want {
				return fmt.Errorf("%s: %s: found %d, expected %d, as in %s", p.path, field.name, field.found, field.want, a.path)
			}
		}
		if p.Fingerprint != a.Fingerprint {
			return fmt.Errorf("%s: fingerprint: found %x..., expected %x..., as in %s: the labels are of another layer",
				p.path, p.Fingerprint[:8], a.Fingerprint[:8], a.path)
		}
	}
	slices.SortStableFunc(parts, func(a, b *File) int { return cmp.Compare(a.First, b.First) })
	next := 0
	for i, p := range parts {
		last := p.First + p.Count - 1
		switch {
		case p.First < next:
			return fmt.Errorf("%s: found contexts %d to %d, expected %d or later: %s has them up to %d",
				p.path, p.First, last, next, parts[i-1].path, next-1)
		case p.First > next:
			return fmt.Errorf("found no labels of contexts %d to %d, expected them before the labels of %s: a part is missing",
				next, p.First-1, p.path)
		}
		next = last + 1
	}
	if total := parts[0].Total; next < total {
		return fmt.Errorf("found no labels of contexts %d to %d, expected them after the labels of %s: a part is missing",
			next, total-1, parts[len(parts)-1].path)
	}
	return nil
}
