package jinja

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// absent is an argument that a call does not have.
var absent = &undefined{message: "an argument is missing"}

// bind returns the arguments of a call in the order of parameters. The first need ones must be
// there.
func (r *render) bind(name string, c *call, need int, params ...string) []any {
	if len(c.list) > len(params) {
		r.fail("%s() takes at most %d arguments, found %d", name, len(params), len(c.list))
	}
	args := make([]any, len(params))
	for i := range args {
		args[i] = any(absent)
	}
	copy(args, c.list)
	for i, key := range c.names {
		at := slices.Index(params, key)
		if at < 0 || at < len(c.list) {
			r.fail("%s() got an unexpected keyword argument '%s'", name, key)
		}
		args[at] = c.values[i]
	}
	for i := range need {
		if args[i] == any(absent) {
			r.fail("%s() is missing the argument '%s'", name, params[i])
		}
	}
	return args
}

func or(x, otherwise any) any {
	if x == any(absent) {
		return otherwise
	}
	return x
}

// texts are arguments that are strings, with the given ones in place of those that are absent.
func (r *render) texts(name string, args []any, otherwise ...string) []string {
	list := make([]string, len(args))
	for i, x := range args {
		if x == any(absent) || x == nil && i < len(otherwise) {
			list[i] = otherwise[i]
			continue
		}
		text, ok := str(r.defined(x))
		if !ok {
			r.fail("%s() expected a str, found a %s", name, typeName(x))
		}
		list[i] = text
	}
	return list
}

// functions are the global functions. No map here is changed.
var functions map[string]*function

func init() {
	functions = map[string]*function{}
	for name, f := range map[string]func(r *render, c *call) any{
		"range": func(r *render, c *call) any {
			a := r.bind("range", c, 1, "start", "stop", "step")
			start, stop, step := 0, r.integer(a[0]), 1
			if a[1] != any(absent) {
				start, stop = stop, r.integer(a[1])
			}
			if a[2] != any(absent) {
				step = r.integer(a[2])
			}
			if step == 0 {
				r.fail("range() arg 3 must not be zero")
			}
			n := max(0, (stop-start+step-cmp.Compare(step, 0))/step)
			if n > 100_000 { // as the sandbox of jinja2 has it
				r.fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).")
			}
			r.hold(24 * n)
			items := make([]any, n)
			for i := range items {
				items[i] = int64(start + i*step)
			}
			return &sequence{form: ranged, items: items}
		},
		"dict": func(r *render, c *call) any { return r.dict(c) },
		"namespace": func(r *render, c *call) any {
			d := r.dict(c)
			for _, key := range d.keys {
				if name, ok := str(key); ok {
					r.name(name)
				}
			}
			return &namespace{d}
		},
		"joiner": func(r *render, c *call) any {
			sep := or(r.bind("joiner", c, 0, "sep")[0], ", ")
			used := false
			return &function{"joiner", func(r *render, c *call) any {
				if !used {
					used = true
					return ""
				}
				return sep
			}}
		},
		"cycler": func(r *render, c *call) any {
			if len(c.list) == 0 {
				r.fail("at least one item has to be provided")
			}
			at, items := 0, c.list
			fields := NewDict("next", &function{"next", func(*render, *call) any {
				x := items[at]
				at = (at + 1) % len(items)
				return x
			}}, "reset", &function{"reset", func(*render, *call) any {
				at = 0
				return nil
			}})
			return &namespace{fields}
		},
		"raise_exception": func(r *render, c *call) any {
			text := r.text(r.bind("raise_exception", c, 1, "message")[0])
			panic(&Error{Line: r.line, Text: text, Raised: true})
		},
		"strftime_now": func(r *render, c *call) any {
			return r.made(r.strftime(r.texts("strftime_now", r.bind("strftime_now", c, 1, "format"))[0]))
		},
	} {
		functions[name] = &function{name, f}
	}
}

func (r *render) dict(c *call) *Dict {
	d := NewDict()
	if len(c.list) > 1 {
		r.fail("dict expected at most 1 argument, got %d", len(c.list))
	}
	if len(c.list) == 1 {
		if from, ok := c.list[0].(*Dict); ok {
			for _, key := range from.keys {
				x, _ := from.get(key)
				r.insert(d, key, x)
			}
		} else {
			for _, item := range r.items(c.list[0]) {
				pair := r.items(item)
				if len(pair) != 2 {
					r.fail("dict() expected pairs, found %d items", len(pair))
				}
				r.insert(d, pair[0], pair[1])
			}
		}
	}
	for i, name := range c.names {
		r.insert(d, name, c.values[i])
	}
	return d
}

// strftime has the directives that have one form in every locale.
func (r *render) strftime(format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // glibc's: without zeros
		if plain {
			i++
		}
		layout, ok := map[byte]string{
			'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
			'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'F': "2006-01-02",
			'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'f': "000000", 'e': "_2",
		}[format[i]]
		text := ""
		switch {
		case format[i] == 'f':
			text = strings.TrimPrefix(r.now.Format(".000000"), ".")
		case ok:
			text = r.now.Format(layout)
		case format[i] == '%':
			text = "%"
		case format[i] == 'w':
			text = strconv.Itoa(int(r.now.Weekday()))
		case format[i] == 'u':
			text = strconv.Itoa((int(r.now.Weekday())+6)%7 + 1)
		case format[i] == 'z', format[i] == 'Z': // of a time without a zone, as Python's now
		default:
			r.fail("strftime_now: found %%%c", format[i])
		}
		if plain && len(text) > 1 {
			text = cmp.Or(strings.TrimLeft(text, "0 "), "0")
		}
		b.WriteString(text)
	}
	return b.String()
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace(s)
}

// upper and lower are Python's, but for characters whose other case has several characters, or
// depends on their place.
func (r *render) upper(s string) string {
	r.known("upper", s, func(c rune) bool {
		return c == 'ŉ' || c == 'ǰ' || c == 'ΐ' || c == 'ΰ' || c == 'և' || c >= 0x1e96 && c <= 0x1e9a || c >= 0x1f50 && c <= 0x1fff || c >= 0xfb00 && c <= 0xfb17
	})
	return r.made(strings.ReplaceAll(strings.ToUpper(s), "ß", "SS"))
}

func (r *render) lower(s string) string {
	r.known("lower", s, func(c rune) bool { return c == 'İ' || c == 'Σ' })
	return r.made(strings.ToLower(s))
}

func (r *render) known(name, s string, odd func(rune) bool) {
	if i := strings.IndexFunc(s, odd); i >= 0 {
		c, _ := utf8.DecodeRuneInString(s[i:])
		r.fail("%s: found %q, which it does not change", name, c)
	}
}

// capital is Python's capitalize.
func (r *render) capital(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return r.upper(s[:n]) + r.lower(s[n:])
}

// title makes the first letter of each word large. begins tells where words begin, from the
// character before.
func (r *render) title(s string, begins func(before rune) bool) string {
	var b strings.Builder
	before := ' '
	for _, c := range s {
		if begins(before) {
			b.WriteString(r.upper(string(c)))
		} else {
			b.WriteString(r.lower(string(c)))
		}
		before = c
	}
	return b.String()
}

// fill is text up to a width.
func (r *render) fill(s string, width int, left float64, with string) string {
	n := width - utf8.RuneCountInString(s)
	if n <= 0 {
		return s
	}
	r.repeats(len(with), int64(n))
	before := int(float64(n) * left)
	return strings.Repeat(with, before) + s + strings.Repeat(with, n-before)
}

// percent is Python's text % value, for %s, %d, %i, %r, %f and %%.
func (r *render) percent(text string, x any) any {
	values := []any{x}
	if t, ok := x.(*sequence); ok && t.form == tuple {
		values = t.items
	}
	var b strings.Builder
	used := 0
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		i++
		precision := -1
		if i+2 < len(text) && text[i] == '.' && text[i+1] >= '0' && text[i+1] <= '9' {
			precision = int(text[i+1] - '0')
			i += 2
		}
		if i >= len(text) {
			r.fail("incomplete format")
		}
		if text[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if used == len(values) {
			r.fail("not enough arguments for format string")
		}
		v := values[used]
		used++
		switch {
		case text[i] == 's' && precision < 0:
			b.WriteString(r.made(r.text(v)))
		case text[i] == 'r' && precision < 0:
			r.repr(&b, v)
		case (text[i] == 'd' || text[i] == 'i') && precision < 0:
			if f, ok := v.(float64); ok {
				v = int64(f)
			}
			n, ok := integer(v)
			if !ok {
				r.fail("%%%c format: a real number is required, not %s", text[i], typeName(v))
			}
			b.WriteString(strconv.FormatInt(n, 10))
		case text[i] == 'f':
			if precision < 0 {
				precision = 6
			}
			b.WriteString(r.made(strconv.FormatFloat(r.number(v), 'f', precision, 64)))
		default:
			r.fail("found the format %q, expected %%s, %%d, %%r or %%f", text[i:])
		}
	}
	if _, mapping := x.(*Dict); used < len(values) && !mapping {
		r.fail("not all arguments converted during string formatting")
	}
	return b.String()
}

// format is Python's str.format, for fields with a name or a number, an index or attributes, and
// formats of strings, integers and fixed points.
func (r *render) format(text string, c *call) any {
	var b strings.Builder
	automatic := 0
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			break
		}
		b.WriteString(r.made(text[:i]))
		if i+1 < len(text) && text[i+1] == text[i] {
			b.WriteByte(text[i])
			text = text[i+2:]
			continue
		}
		end := strings.IndexByte(text, '}')
		if text[i] == '}' || end < 0 {
			r.fail("Single '%c' encountered in format string", text[i])
		}
		field, spec, _ := strings.Cut(text[i+1:end], ":")
		text = text[end+1:]
		name, repr := strings.CutSuffix(field, "!r")
		name = strings.TrimSuffix(name, "!s")
		first := name
		if j := strings.IndexAny(name, ".["); j >= 0 {
			first = name[:j]
		}
		rest := name[len(first):]
		var v any
		if first == "" {
			first = strconv.Itoa(automatic)
			automatic++
		}
		if n, err := strconv.Atoi(first); err == nil {
			if n < 0 || n >= len(c.list) {
				r.fail("Replacement index %d out of range for positional args tuple", n)
			}
			v = c.list[n]
		} else if at := slices.Index(c.names, first); at >= 0 {
			v = c.values[at]
		} else {
			r.fail("format: found no argument %q", first)
		}
		for rest != "" {
			if key, ok := strings.CutPrefix(rest, "["); ok {
				key, after, ok := strings.Cut(key, "]")
				if !ok {
					r.fail("expected '}' before end of string")
				}
				if n, err := strconv.ParseInt(key, 10, 64); err == nil {
					v = r.defined(r.item(v, n))
				} else {
					v = r.defined(r.item(v, key))
				}
				rest = after
				continue
			}
			rest = rest[1:]
			n := strings.IndexAny(rest, ".[")
			if n < 0 {
				n = len(rest)
			}
			v = r.defined(r.attribute(v, rest[:n]))
			rest = rest[n:]
		}
		if repr {
			var q strings.Builder
			r.repr(&q, v)
			v = q.String()
		}
		b.WriteString(r.made(r.spec(v, spec)))
	}
	b.WriteString(r.made(text))
	return b.String()
}

// spec is a value in a format: [[fill]align][0][width][.precision][s, d or f].
func (r *render) spec(v any, spec string) string {
	if spec == "" {
		return r.text(v)
	}
	whole, with, align := spec, " ", byte(0)
	if _, n := utf8.DecodeRuneInString(spec); n < len(spec) && strings.IndexByte("<>^", spec[n]) >= 0 {
		with, align, spec = spec[:n], spec[n], spec[n+1:]
	} else if strings.IndexByte("<>^", spec[0]) >= 0 {
		align, spec = spec[0], spec[1:]
	}
	zero := strings.HasPrefix(spec, "0")
	n := 0
	for n < len(spec) && spec[n] >= '0' && spec[n] <= '9' {
		n++
	}
	width, _ := strconv.Atoi("0" + spec[:min(n, 6)])
	spec = spec[n:]
	precision := -1
	if s, ok := strings.CutPrefix(spec, "."); ok && s != "" && s[0] >= '0' && s[0] <= '9' {
		precision, spec = int(s[0]-'0'), s[1:]
	}
	_, text := str(v)
	i, whole64 := integer(v)
	_, isBool := v.(bool)
	s := ""
	switch {
	case n > 6 || align == '=' || zero && (align != 0 || text):
		r.fail("found the format %q", whole)
	case text && (spec == "" || spec == "s") && precision < 0:
		s = r.text(v)
		align = max(align, '<')
	case whole64 && !isBool && (spec == "" || spec == "d") && precision < 0:
		s = strconv.FormatInt(i, 10)
	case spec == "f":
		if precision < 0 {
			precision = 6
		}
		s = strconv.FormatFloat(r.number(v), 'f', precision, 64)
	default:
		r.fail("found the format %q of a %s", whole, typeName(v))
	}
	if zero {
		sign := ""
		if strings.HasPrefix(s, "-") {
			sign, s = "-", s[1:]
		}
		return sign + r.fill(s, width-len(sign), 1, "0")
	}
	return r.fill(s, width, map[byte]float64{'<': 0, '^': 0.5, '>': 1, 0: 1}[align], with)
}

// sort returns values in order of their keys.
func (r *render) sort(items []any, reverse bool, key func(any) any) []any {
	r.hold(48 * len(items))
	type keyed struct{ key, item any }
	list := make([]keyed, len(items))
	for i, item := range items {
		list[i] = keyed{key(item), item}
	}
	slices.SortStableFunc(list, func(a, b keyed) int {
		switch {
		case r.less("<", a.key, b.key):
			return -1
		case r.less("<", b.key, a.key):
			return 1
		}
		return 0
	})
	sorted := make([]any, len(items))
	for i, x := range list {
		sorted[i] = x.item
	}
	if reverse { // which keeps the order of equal ones
		slices.SortStableFunc(list, func(a, b keyed) int {
			switch {
			case r.less("<", b.key, a.key):
				return -1
			case r.less("<", a.key, b.key):
				return 1
			}
			return 0
		})
		for i, x := range list {
			sorted[i] = x.item
		}
	}
	return sorted
}

// getter returns the function that reads an attribute, such as "a.b.0", of a value.
func (r *render) getter(attribute, otherwise any, ignoreCase bool) func(any) any {
	folded := func(x any) any {
		if text, ok := str(x); ok && ignoreCase {
			return r.lower(text)
		}
		return x
	}
	if attribute == nil || attribute == any(absent) {
		return folded
	}
	var parts []any
	if n, ok := integer(attribute); ok {
		parts = []any{n}
	} else {
		for part := range strings.SplitSeq(r.text(attribute), ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil {
				parts = append(parts, n)
			} else {
				parts = append(parts, part)
			}
		}
	}
	return func(x any) any {
		for _, part := range parts {
			x = r.item(x, part)
			if _, missing := x.(*undefined); missing && otherwise != any(absent) && otherwise != nil {
				x = otherwise
			}
		}
		return folded(x)
	}
}

func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }

// spaces are the ends of words for the filter title.
func wordEnds(c rune) bool { return space(c) || strings.ContainsRune("-({[<", c) }

func round(x float64, precision int, method string) (float64, bool) {
	scale := math.Pow(10, float64(precision))
	switch method {
	case "ceil":
		return math.Ceil(x*scale) / scale, true
	case "floor":
		return math.Floor(x*scale) / scale, true
	case "common":
		if precision < 0 {
			return math.RoundToEven(x*scale) / scale, true
		}
		y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', precision, 64), 64)
		return y, true
	}
	return 0, false
}
