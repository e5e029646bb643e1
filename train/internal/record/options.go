package record

import "fmt"

// Options checks options one after the other. Err is the error of the first invalid option: its
// name, the value found and the value expected.
type Options struct{ Err error }

// Want sets the error if an option is not ok; the format describes the expected value.
func (o *Options) Want(ok bool, name string, found any, format string, args ...any) {
	if !ok && o.Err == nil {
		o.Err = fmt.Errorf("%s: found %v, expected %s", name, found, fmt.Sprintf(format, args...))
	}
}
