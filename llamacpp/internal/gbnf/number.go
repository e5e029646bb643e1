package gbnf

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// mostInteger bounds the bounds of integers: all have at most 16 digits.
const mostInteger = 9_999_999_999_999_999

// bound reads a bound of a number, which must be an integer.
func (k *keywords) bound(name string, integer bool) (x int64, inexact, ok bool) {
	v := k.of[name]
	if v == nil {
		return 0, false, false
	}
	var r big.Rat
	if _, err := strconv.ParseFloat(string(v), 64); err != nil && !isRange(err) || len(v) > 40 {
		fail(k.path+"/"+name, "found %s, expected a number", short(v))
	}
	if _, ok := r.SetString(string(v)); !ok {
		fail(k.path+"/"+name, "found %s, expected a number", short(v))
	}
	if !r.IsInt() && !integer {
		fail(k.path+"/"+name, "found %s, expected an integer, also for a number", short(v))
	}
	f, _ := r.Float64()
	low := strings.HasSuffix(strings.ToLower(name), "minimum")
	switch {
	case low && f > mostInteger, !low && f < -mostInteger:
		fail(k.path+"/"+name, "found %s, expected a bound of at most 16 digits", short(v))
	case f > mostInteger:
		return mostInteger, true, true
	case f < -mostInteger:
		return -mostInteger, true, true
	}
	if r.IsInt() {
		return r.Num().Int64(), false, true
	}
	return int64(math.Floor(f)), true, true
}

func isRange(err error) bool {
	e, is := err.(*strconv.NumError)
	return is && e.Err == strconv.ErrRange
}

// number: an integer, or a number with a fraction.
func (g *Grammar) number(k *keywords, integer bool) string {
	low, high := int64(-mostInteger), int64(mostInteger)
	bounded, noLow, noHigh := false, false, false
	if x, inexact, ok := k.bound("minimum", integer); ok {
		if low, bounded = x, true; inexact && x >= -mostInteger && x < mostInteger {
			low++ // of a fraction, whose floor is below it
		}
		if inexact && x == -mostInteger {
			low = x
		}
	}
	if x, _, ok := k.bound("maximum", integer); ok {
		high, bounded = x, true
	}
	if x, _, ok := k.bound("exclusiveMinimum", integer); ok {
		bounded = true
		switch {
		case integer && x+1 > low:
			low = x + 1
		case !integer && x >= low:
			low, noLow = x, true
		}
	}
	if x, inexact, ok := k.bound("exclusiveMaximum", integer); ok {
		bounded = true
		switch {
		case integer && inexact:
			high = min(high, x)
		case integer && x-1 < high:
			high = x - 1
		case !integer && x <= high:
			high, noHigh = x, true
		}
	}
	switch {
	case !bounded && integer:
		return g.Part("integer")
	case !bounded:
		return g.Part("number")
	case low > high || low == high && (noLow || noHigh):
		fail(k.path, "found bounds between which there is no number, expected some")
	}
	var any []string
	if integer {
		if low < 0 {
			any = append(any, `"-" `+g.rule(between(max(-high, 1), -low)))
		}
		if high >= 0 {
			any = append(any, between(max(low, 0), high))
		}
		return strings.Join(any, " | ")
	}
	if low < 0 {
		any = append(any, `"-" `+g.rule(g.fractions(max(-high, 0), -low, noHigh && high <= 0, noLow)))
	}
	if high > 0 || high == 0 && !noHigh && !(low == 0 && noLow) {
		any = append(any, g.fractions(max(low, 0), high, noLow && low >= 0, noHigh))
	}
	return strings.Join(any, " | ")
}

// fractions are the numbers of an interval of integers that are not negative.
func (g *Grammar) fractions(low, high int64, noLow, noHigh bool) string {
	const some, zeros, notZero = `("." [0-9]{1,16})?`, `("." "0"{1,16})?`, `"." "0"{0,8} [1-9] [0-9]{0,7}`
	var any []string
	whole := low // the first integer part with any fraction
	if noLow && low < high {
		any = append(any, fmt.Sprintf(`"%d" %s`, low, notZero))
		whole++
	}
	if whole < high {
		any = append(any, g.rule(between(whole, high-1))+" "+some)
	}
	if !noHigh {
		any = append(any, fmt.Sprintf(`"%d" %s`, high, zeros))
	}
	return strings.Join(any, " | ")
}

// between are the integers of an interval, 0 <= low <= high.
func between(low, high int64) string {
	var any []string
	for low <= high {
		// The integers with as many digits as low.
		end := int64(9)
		for end < low {
			end = 10*end + 9
		}
		end = min(end, high)
		any = append(any, digits(strconv.FormatInt(low, 10), strconv.FormatInt(end, 10)))
		low = end + 1
	}
	return strings.Join(any, " | ")
}

// digits are the numbers between two with equally many digits.
func digits(low, high string) string {
	if low == "" {
		return ""
	}
	rest := len(low) - 1
	free := func() string {
		switch rest {
		case 0:
			return ""
		case 1:
			return " [0-9]"
		}
		return fmt.Sprintf(" [0-9]{%d}", rest)
	}
	class := func(from, to byte) string {
		if from == to {
			return fmt.Sprintf("%q", string(from))
		}
		return fmt.Sprintf("[%c-%c]", from, to)
	}
	a, b := low[0], high[0]
	least, most := strings.Trim(low[1:], "0") == "", strings.Trim(high[1:], "9") == ""
	if a == b {
		if least && most {
			return class(a, b) + free()
		}
		return class(a, a) + " (" + digits(low[1:], high[1:]) + ")"
	}
	var any []string
	if !least {
		any = append(any, class(a, a)+" ("+digits(low[1:], strings.Repeat("9", rest))+")")
		a++
	}
	last := ""
	if !most {
		last = class(b, b) + " (" + digits(strings.Repeat("0", rest), high[1:]) + ")"
		b--
	}
	if a <= b {
		any = append(any, class(a, b)+free())
	}
	if last != "" {
		any = append(any, last)
	}
	return strings.Join(any, " | ")
}
