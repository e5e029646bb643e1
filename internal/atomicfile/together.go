package atomicfile

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// CommitTogether is Commit for files that belong together: unless the process is killed
// between two renames, either all are at their destinations afterwards, or all destinations
// are as they were. If one cannot be replaced, those that were are taken back; where the file
// system cannot do that, having no hard links, the error names them. If a folder cannot be
// synced all are at their destinations, and the error says so, as from Commit. A caller that
// two processes may run at once has to Hold the paths.
func CommitTogether(files ...*File) error {
	defer func() {
		for _, f := range files {
			f.Abort()
		}
	}()
	for _, f := range files { // so that a full disk is found out before anything is replaced
		if err := f.Sync(); err != nil {
			return err
		}
	}
	before := make([]committed, len(files))
	for i, f := range files {
		if i < len(files)-1 { // of the last there is nothing to take back
			before[i] = keep(f)
			defer before[i].forget()
		}
	}
	for i, f := range files {
		if err := f.replace(); err != nil {
			return takeBack(before[:i], err)
		}
	}
	var err error
	for _, f := range files {
		err = cmp.Or(err, f.settle())
	}
	return err
}

// takeBack restores what was there, and returns err, with the paths at which that failed.
func takeBack(done []committed, err error) error {
	var stay []string
	for i := range done {
		if !done[i].restore() {
			stay = append(stay, done[i].path)
		}
	}
	if stay != nil {
		err = fmt.Errorf("%w; %s was replaced before, which could not be taken back", err, strings.Join(stay, ", "))
	}
	return err
}

// committed is what was at a destination.
type committed struct {
	path, dest string
	before     bool   // whether there was a file
	kept       string // another name of that file; empty if it has none
}

// keep gives the file at the destination of f another name, beside it.
func keep(f *File) committed {
	c := committed{path: f.path, dest: f.dest}
	if _, err := os.Lstat(f.dest); err != nil {
		return c
	}
	c.before = true
	// Named like a temporary file, it is removed by a later run if this one is killed.
	name := filepath.Join(filepath.Dir(f.dest), fmt.Sprint(temporaryPrefix(f.dest), rand.Uint32()))
	if os.Link(f.dest, name) == nil {
		c.kept = name
	}
	return c
}

// restore puts back what was there, and reports whether it could.
func (c *committed) restore() bool {
	if !c.before {
		return os.Remove(c.dest) == nil
	}
	if c.kept == "" || os.Rename(c.kept, c.dest) != nil {
		return false
	}
	c.kept = ""
	return true
}

// forget removes the other name.
func (c *committed) forget() {
	if c.kept != "" {
		os.Remove(c.kept)
	}
}
