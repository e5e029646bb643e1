package record

import "fmt"

// Options are options that are checked one after the other. Err is about the first that will not
// do: its name, what was found and what was expected.
type Options struct{ Err error }

// Want says whether an option will do, and by a format what is expected of it.
func (o *Options) Want(ok bool, name string, found any, format string, args ...any) {
	if !ok && o.Err == nil {
		o.Err = fmt.Errorf("%s: found %v, expected %s", name, found, fmt.Sprintf(format, args...))
	}
}
