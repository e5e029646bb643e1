package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CommitTogether is Commit for files that belong together: either all are at their
// destinations afterwards, or all destinations are as they were. If one cannot be replaced,
// those that were are taken back; where the file system cannot do that, having no hard links,
// the error names them. A caller that two processes may run at once has to Hold the paths.
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
	var done []committed
	defer func() {
		for _, c := range done {
			c.forget()
		}
	}()
	for _, f := range files {
		c := keep(f)
		err := f.Commit()
		done = append(done, c)
		if err == nil {
			continue
		}
		var stay []string
		for _, c := range done[:len(done)-1] {
			if !c.restore() {
				stay = append(stay, c.path)
			}
		}
		if stay != nil {
			err = fmt.Errorf("%w; %s was replaced before, which could not be taken back", err, strings.Join(stay, ", "))
		}
		return err
	}
	return nil
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
	name := filepath.Join(filepath.Dir(f.dest), strings.Replace(filepath.Base(f.tmp.Name()), ".tmp-", ".old-", 1))
	if name != f.tmp.Name() && os.Link(f.dest, name) == nil {
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
