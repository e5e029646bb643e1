package layerfile

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unsafe"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
)

// Contexts are context vectors in a file, or in several, one after the other.
type Contexts struct {
	name  string
	dim   int
	parts []*tensorfile.Tensor
	ends  []int // the number of contexts in a part and those before it
	all   []float32
	unmap func([]byte) error // of all, if it is a file of its own
	at    int                // the number of the context that comes next
	block []float32          // nextBlock contexts, that one among them
}

// OpenContexts opens contexts, before their layer is known. No contexts are available before the
// call of Fit. A source is a tensor.
func OpenContexts(sources []string) (*Contexts, error) {
	c := &Contexts{name: sources[0]}
	if more := len(sources) - 1; more > 0 {
		c.name += fmt.Sprintf(" and %s more", progress.Count(more))
	}
	for _, src := range sources {
		t, err := tensorfile.OpenTensor(src)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.parts = append(c.parts, t)
	}
	return c, nil
}

// Name names the source of the contexts for errors.
func (c *Contexts) Name() string { return c.name }

// Fit makes the contexts belong to a layer whose weights errors call by that name, or closes the
// files. Each part is as [tensorfile.Tensor.ExpectContexts] expects.
func (c *Contexts) Fit(l *l2s.Layer, weights string) error {
	c.dim = l.Dim()
	for _, t := range c.parts {
		if err := checkContexts(t, l, weights); err != nil {
			c.Close()
			return err
		}
		c.ends = append(c.ends, c.Len()+t.Rows())
	}
	return nil
}

func checkContexts(t *tensorfile.Tensor, l *l2s.Layer, weights string) error {
	err := t.ExpectContexts(l.Dim())
	if err == nil || t.Rows() == 0 || len(t.Shape) > 2 && t.Shape[len(t.Shape)-1] == l.Dim() {
		return err
	}
	err = fmt.Errorf("%w, the columns of %s", err, weights)
	switch {
	case len(t.Shape) != 2:
	case t.Cols() == l.Labels():
		return fmt.Errorf("%w, or weights of %d columns: %[3]s has %[2]d rows, save its transpose if the columns are the labels", err, t.Cols(), weights)
	case t.Rows() == l.Dim():
		return fmt.Errorf("%w: save its transpose", err)
	}
	return err
}

// First leaves out all contexts but the first n, which are not read then.
func (c *Contexts) First(n int) {
	for i, end := range c.ends {
		c.ends[i] = min(end, n)
	}
}

// nextBlock is the number of contexts that Next reads at once.
const nextBlock = 256

// Next reads the next context into h, which has room for one; at the end it returns io.EOF.
func (c *Contexts) Next(ctx context.Context, h []float32) error {
	if c.at == c.Len() {
		return io.EOF
	}
	row := c.at % nextBlock
	if row == 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.block = mem.Grow(c.block, min(nextBlock, c.Len()-c.at)*c.dim)
		if err := c.Read(c.block, c.at); err != nil {
			return err
		}
	}
	copy(h, c.block[row*c.dim:][:c.dim])
	c.at++
	return nil
}

// Len returns the number of contexts.
func (c *Contexts) Len() int {
	if len(c.ends) == 0 {
		return 0
	}
	return c.ends[len(c.ends)-1]
}

// Read fills dst with the contexts from number first on, as float32. It returns an error for a
// number that is NaN, infinite or not within float32.
func (c *Contexts) Read(dst []float32, first int) error {
	i := sort.SearchInts(c.ends, first+1)
	for len(dst) > 0 {
		begin := 0
		if i > 0 {
			begin = c.ends[i-1]
		}
		n, err := c.parts[i].ReadRows(dst, first-begin)
		if err != nil {
			return err
		}
		dst, first, i = dst[n*c.dim:], first+n, i+1
	}
	return nil
}

// All returns all contexts, row by row, until Close. One file of float32 in C order is mapped.
// Others are converted: in memory, or, above a GiB, in a temporary file, which is mapped. So
// contexts may be larger than memory. Read mapped contexts under a guard of package fault.
func (c *Contexts) All(ctx context.Context) ([]float32, error) {
	return c.allWithin(ctx, 1<<30)
}

func (c *Contexts) allWithin(ctx context.Context, limit int) (rows []float32, err error) {
	switch {
	case c.all != nil:
		return c.all, nil
	case len(c.parts) == 1 && c.parts[0].InPlace():
		rows, err = c.parts[0].Mapped()
	case c.Len() <= limit/4/c.dim:
		rows = make([]float32, c.Len()*c.dim)
		err = c.blocks(ctx, func(first, n int) error { return c.Read(rows[first*c.dim:(first+n)*c.dim], first) })
	default:
		rows, err = c.spool(ctx)
	}
	if err == nil {
		c.all = rows
	}
	return c.all, err
}

// blocks calls f for blocks of contexts, in order.
func (c *Contexts) blocks(ctx context.Context, f func(first, n int) error) error {
	size := max(1, 1<<20/c.dim)
	for first := 0; first < c.Len(); first += size {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(first, min(size, c.Len()-first)); err != nil {
			return err
		}
	}
	return nil
}

// spool maps a temporary file of all contexts, in the system's folder for temporary files. It loses
// its name at once, so that the system removes it when the program ends in any way.
func (c *Contexts) spool(ctx context.Context) (rows []float32, err error) {
	file, err := os.CreateTemp("", "l2s-contexts-")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if os.Remove(file.Name()) != nil { // a system on which open files have names
		defer func() {
			file.Close()
			os.Remove(file.Name())
		}()
	}
	var block []float32
	err = c.blocks(ctx, func(first, n int) error {
		block = mem.Grow(block, n*c.dim)
		if err := c.Read(block, first); err != nil {
			return err
		}
		_, err := file.Write(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(block))), 4*len(block)))
		return err
	})
	if err != nil {
		return nil, err
	}
	data, unmap, err := mem.MapFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	c.unmap = unmap
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4), nil
}

// Close closes the files.
func (c *Contexts) Close() {
	for _, t := range c.parts {
		t.Close()
	}
	if c.unmap != nil {
		c.unmap(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(c.all))), 4*len(c.all)))
		c.all, c.unmap = nil, nil
	}
}

// Expand replaces each source with *, ? or [ in the name of its file by the files that it matches,
// in the order of their names, unless it is itself the name of a file.
func Expand(sources []string) (all []string, err error) {
	for _, src := range sources {
		path, name, named := tensorfile.SplitSource(src)
		if _, err := os.Stat(path); err == nil || !strings.ContainsAny(path, "*?[") {
			all = append(all, src)
			continue
		}
		files, err := filepath.Glob(path)
		if err != nil {
			return nil, fmt.Errorf("%s: found a pattern with an error, expected *, ? and pairs of brackets", path)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s: found no such file, expected at least one", path)
		}
		for _, file := range files {
			if named {
				file += ":" + name
			}
			all = append(all, file)
		}
	}
	return all, nil
}
