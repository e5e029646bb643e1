package cmdline

import (
	"errors"
	"strconv"
	"strings"
)

// Whole reads a whole number in decimal digits: a zero in front has no meaning. Of a number that is
// too large for an int the error is [strconv.ErrRange], by errors.Is.
func Whole(s string) (int, error) { return strconv.Atoi(s) }

// Float reads a number in decimal digits, with a point and an exponent if there are, NaN or Inf.
func Float(s string) (float64, error) {
	if strings.ContainsAny(s, "xX_") {
		return 0, errors.New("expected decimal digits")
	}
	return strconv.ParseFloat(s, 64)
}
