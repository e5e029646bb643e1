package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filter applies a filter.
func (r *render) filter(name string, x any, c *call) any {
	bind := func(params ...string) []any { return r.bind(name, c, 0, params...) }
	of := func(f form, items []any) any { return r.list(f, items) }
	switch name {
	case "default", "d":
		a := bind("default_value", "boolean")
		_, missing := x.(*undefined)
		if missing || r.truth(or(a[1], false)) && !r.truth(x) {
			return or(a[0], "")
		}
		return x
	case "tojson":
		return r.json(x, bind("ensure_ascii", "indent", "separators", "sort_keys"))
	case "trim":
		chars := bind("chars")[0]
		return r.like(x, trim(r.text(x), r.texts(name, []any{or(chars, nil)}, "")[0], chars != any(absent) && chars != nil, 3))
	case "length", "count":
		bind()
		return r.length(x)
	case "string":
		bind()
		if _, ok := str(x); ok {
			return x
		}
		return r.text(x)
	case "safe":
		bind()
		return markup(r.text(x))
	case "escape", "e":
		bind()
		if _, ok := x.(markup); ok {
			return x
		}
		return markup(r.made(escape(r.text(x))))
	case "upper":
		return r.like(x, r.upper(r.text(x)))
	case "lower":
		return r.like(x, r.lower(r.text(x)))
	case "capitalize":
		return r.like(x, r.capital(r.text(x)))
	case "title":
		return r.title(r.text(x), wordEnds)
	case "replace":
		a := r.bind(name, c, 2, "old", "new", "count")
		return r.replace(r.text(x), r.text(a[0]), r.text(a[1]), a[2])
	case "join":
		a := bind("d", "attribute")
		get := r.getter(a[1], absent, false)
		sep := r.text(or(a[0], ""))
		var b strings.Builder
		for i, item := range r.items(x) {
			if i > 0 {
				b.WriteString(r.made(sep))
			}
			b.WriteString(r.made(r.text(get(item))))
		}
		return b.String()
	case "items":
		bind()
		return r.generated(func() []any {
			d, ok := x.(*Dict)
			if !ok {
				if _, missing := x.(*undefined); missing {
					return nil
				}
				r.fail("Can only get item pairs from a mapping.")
			}
			return r.pairs(d)
		})
	case "list":
		bind()
		return of(list, slices.Clone(r.items(x)))
	case "first":
		bind()
		if s, ok := x.(*sequence); ok && len(s.items) > 0 {
			return s.items[0]
		}
		if items := r.items(x); len(items) > 0 {
			return items[0]
		}
		return &undefined{message: "No first item, sequence was empty."}
	case "last":
		bind()
		if s, ok := x.(*sequence); ok && s.form == generator {
			r.fail("'generator' object is not reversible")
		}
		if items := r.items(x); len(items) > 0 {
			return items[len(items)-1]
		}
		return &undefined{message: "No last item, sequence was empty."}
	case "reverse":
		bind()
		if text, ok := str(x); ok {
			r.hold(5 * len(text))
			runes := []rune(text)
			slices.Reverse(runes)
			return string(runes)
		}
		items := slices.Clone(r.items(x))
		slices.Reverse(items)
		return r.generated(func() []any { return items })
	case "sort":
		a := bind("reverse", "case_sensitive", "attribute")
		key := r.getter(a[2], absent, !r.truth(or(a[1], false)))
		if text, ok := str(a[2]); ok && strings.Contains(text, ",") {
			r.fail("sort: found the attributes %q, expected one", text)
		}
		return of(list, r.sort(r.items(x), r.truth(or(a[0], false)), key))
	case "dictsort":
		a := bind("case_sensitive", "by", "reverse")
		d, ok := r.defined(x).(*Dict)
		if !ok {
			r.fail("'%s' object has no attribute 'items'", typeName(x))
		}
		at := int64(slices.Index([]string{"key", "value"}, r.text(or(a[1], "key"))))
		if at < 0 {
			r.fail("You can only sort by either \"key\" or \"value\"")
		}
		return of(list, r.sort(r.pairs(d), r.truth(or(a[2], false)), r.getter(at, absent, !r.truth(or(a[0], false)))))
	case "unique":
		a := bind("case_sensitive", "attribute")
		get := r.getter(a[1], absent, !r.truth(or(a[0], false)))
		return r.generated(func() (kept []any) {
			seen := NewDict()
			for _, item := range r.items(x) {
				key := get(item)
				if _, there := seen.get(key); !there {
					r.insert(seen, key, nil)
					kept = append(kept, item)
				}
			}
			return kept
		})
	case "min", "max":
		a := bind("case_sensitive", "attribute")
		items := r.items(x)
		if len(items) == 0 {
			return &undefined{message: "No aggregated item, sequence was empty."}
		}
		get := r.getter(a[1], absent, !r.truth(or(a[0], false)))
		best := items[0]
		for _, item := range items[1:] {
			if name == "min" && r.less("<", get(item), get(best)) || name == "max" && r.less(">", get(best), get(item)) {
				best = item
			}
		}
		return best
	case "sum":
		a := bind("attribute", "start")
		get := r.getter(a[0], absent, false)
		var sum any = or(a[1], int64(0))
		for _, item := range r.items(x) {
			sum = r.binary("+", sum, get(item))
		}
		return sum
	case "batch":
		a := r.bind(name, c, 1, "linecount", "fill_with")
		n := r.integer(a[0])
		if n < 1 {
			r.fail("batch: found %d, expected 1 or more", n)
		}
		return r.generated(func() (rows []any) {
			for row := range slices.Chunk(r.items(x), n) {
				row = slices.Clone(row)
				if fill := or(a[1], nil); fill != nil {
					r.repeats(16, int64(n-len(row)))
					row = append(row, slices.Repeat([]any{fill}, n-len(row))...)
				}
				rows = append(rows, of(list, row))
			}
			return rows
		})
	case "map":
		return r.mapped(x, c)
	case "select", "reject", "selectattr", "rejectattr":
		return r.selected(name, x, c)
	case "int":
		a := bind("default", "base")
		return r.toInt(x, or(a[0], int64(0)), or(a[1], int64(10)))
	case "float":
		a := bind("default")
		if f, ok := float(x); ok {
			return f
		}
		if text, ok := str(x); ok {
			if f, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimFunc(text, space), "_", "x"), 64); err == nil && !strings.ContainsAny(text, "xXpP") {
				return f
			}
		}
		return or(a[0], 0.0)
	case "abs":
		bind()
		if i, ok := integer(x); ok && i != math.MinInt64 {
			return max(i, -i)
		}
		return math.Abs(r.number(x))
	case "round":
		a := bind("precision", "method")
		method := r.text(or(a[1], "common"))
		if i, ok := integer(x); ok && method == "common" {
			if n := r.integer(or(a[0], int64(0))); n < 0 {
				r.fail("round: found the precision %d of an integer, expected 0 or more", n)
			}
			return i
		}
		y, ok := round(r.number(x), r.integer(or(a[0], int64(0))), method)
		if !ok {
			r.fail("method must be common, ceil or floor")
		}
		return y
	case "indent":
		a := bind("width", "first", "blank")
		return r.indent(r.text(x), or(a[0], int64(4)), r.truth(or(a[1], false)), r.truth(or(a[2], false)))
	case "wordcount":
		bind()
		return int64(len(strings.FieldsFunc(r.text(x), func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) })))
	case "format":
		if len(c.names) > 0 {
			r.fail("format: found names, expected none")
		}
		return r.percent(r.text(x), r.list(tuple, c.list))
	case "attr":
		a := r.bind(name, c, 1, "name")
		if m := r.method(r.defined(x), r.text(a[0])); m != nil {
			return m
		}
		return missing(x, r.text(a[0]))
	}
	r.fail("No filter named '%s' found.", name)
	return nil
}

// like keeps a markup one.
func (r *render) like(x any, text string) any {
	if _, ok := x.(markup); ok {
		return markup(text)
	}
	return text
}

// trim is Python's strip of the sides 1, left, and 2, right.
func trim(s, chars string, named bool, sides int) string {
	cut := space
	if named {
		cut = func(c rune) bool { return strings.ContainsRune(chars, c) }
	}
	if sides&1 != 0 {
		s = strings.TrimLeftFunc(s, cut)
	}
	if sides&2 != 0 {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

func (r *render) length(x any) int64 {
	if text, ok := str(x); ok {
		r.spend(len(text) / 32)
		return int64(utf8.RuneCountInString(text))
	}
	switch x := x.(type) {
	case *sequence:
		if x.form != generator {
			return int64(len(x.items))
		}
	case *Dict:
		return int64(len(x.keys))
	case *undefined:
		r.truth(x)
		return 0
	}
	r.fail("object of type '%s' has no len()", typeName(x))
	return 0
}

func (r *render) replace(s, old, to string, count any) string {
	n := -1
	if c := or(count, nil); c != nil {
		n = r.integer(c)
	}
	found := strings.Count(s, old)
	if n >= 0 {
		found = min(found, n)
	}
	r.spend(len(s) / 32)
	r.repeats(max(len(to)-len(old), 0), int64(found))
	r.hold(len(s))
	return strings.Replace(s, old, to, n)
}

func (r *render) pairs(d *Dict) []any {
	r.hold(80 * len(d.keys))
	pairs := make([]any, len(d.keys))
	for i, key := range d.keys {
		x, _ := d.get(key)
		pairs[i] = &sequence{form: tuple, items: []any{key, x}}
	}
	return pairs
}

func (r *render) mapped(x any, c *call) any {
	var apply func(any) any
	if len(c.list) == 0 {
		attribute, otherwise := any(absent), any(absent)
		for i, name := range c.names {
			switch name {
			case "attribute":
				attribute = c.values[i]
			case "default":
				otherwise = c.values[i]
			default:
				r.fail("Unexpected keyword argument '%s'", name)
			}
		}
		if attribute == any(absent) {
			r.fail("map requires a filter argument")
		}
		apply = r.getter(attribute, otherwise, false)
	} else {
		name, rest := r.text(c.list[0]), &call{c.list[1:], c.names, c.values}
		apply = func(x any) any { return r.filter(name, x, rest) }
	}
	return r.generated(func() []any {
		if !r.truth(x) {
			return nil
		}
		items := r.items(x)
		r.hold(16 * len(items))
		made := make([]any, len(items))
		for i, item := range items {
			r.spend(1)
			made[i] = apply(item)
		}
		return made
	})
}

func (r *render) selected(name string, x any, c *call) any {
	get, rest := func(x any) any { return x }, c.list
	kind, attribute := strings.CutSuffix(name, "attr")
	if attribute {
		if len(rest) == 0 {
			r.fail("Missing parameter for attribute name")
		}
		get, rest = r.getter(rest[0], absent, false), rest[1:]
	}
	test := r.truth
	if len(rest) > 0 {
		name, rest := r.text(rest[0]), &call{rest[1:], c.names, c.values}
		test = func(x any) bool { return r.test(name, x, rest) }
	}
	return r.generated(func() (kept []any) {
		if !r.truth(x) {
			return nil
		}
		for _, item := range r.items(x) {
			r.spend(1)
			if test(get(item)) == (kind == "select") {
				kept = append(kept, item)
			}
		}
		return kept
	})
}

func (r *render) toInt(x, otherwise, base any) any {
	switch v := x.(type) {
	case int64, bool:
		i, _ := integer(v)
		return i
	case *big.Int:
		return v
	case float64:
		if math.Abs(v) < 1<<63 {
			return int64(v)
		}
	}
	if text, ok := str(x); ok {
		text = strings.TrimFunc(text, space)
		if b := r.integer(base); b >= 2 && b <= 36 {
			digits := text
			if prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[b]; prefix != "" {
				digits = strings.TrimPrefix(strings.ToLower(text), prefix)
			}
			if i, err := strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), b, 64); err == nil {
				return i
			}
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < 1<<63 && !strings.ContainsAny(text, "xXpP_") {
			return int64(f)
		}
	}
	return otherwise
}

func (r *render) indent(s string, width any, first, blank bool) string {
	by, ok := str(width)
	if !ok {
		by = strings.Repeat(" ", min(max(0, r.integer(width)), 10_000))
	}
	lines := splitLines(s+"\n", false)
	r.repeats(len(by)+1, int64(len(lines)))
	r.hold(2 * len(s))
	for i, line := range lines {
		if (i > 0 || first) && (line != "" || blank || i == 0) {
			lines[i] = by + line
		}
	}
	return strings.Join(lines, "\n")
}

// splitLines is Python's splitlines.
func splitLines(s string, keep bool) (lines []string) {
	for s != "" {
		i := strings.IndexFunc(s, func(c rune) bool {
			return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
		})
		if i < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		if keep {
			lines = append(lines, s[:i+n])
		} else {
			lines = append(lines, s[:i])
		}
		s = s[i+n:]
	}
	return lines
}

func (r *render) json(x any, a []any) any {
	w := &jsonWriter{render: r, item: ", ", key: ": ", ascii: r.truth(or(a[0], false)), sorted: r.truth(or(a[3], false))}
	if indent := or(a[1], nil); indent != nil {
		w.lines, w.item = true, ","
		if text, ok := str(indent); ok {
			w.indent = text
		} else {
			w.indent = strings.Repeat(" ", min(max(0, r.integer(indent)), 1000))
		}
	}
	if pair := or(a[2], nil); pair != nil {
		two := r.items(pair)
		if len(two) != 2 {
			r.fail("tojson: found %d separators, expected 2", len(two))
		}
		texts := r.texts("tojson", two)
		w.item, w.key = texts[0], texts[1]
	}
	w.write(x, 0)
	return w.String()
}

// test applies a test.
func (r *render) test(name string, x any, c *call) bool {
	other := func() any { return r.bind(name, c, 1, "other")[0] }
	compare := map[string]string{
		"eq": "==", "equalto": "==", "==": "==", "ne": "!=", "!=": "!=", "gt": ">", "greaterthan": ">", ">": ">",
		"ge": ">=", ">=": ">=", "lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=", "in": "in",
	}[name]
	if compare != "" {
		return r.compare(compare, x, other())
	}
	u, missing := x.(*undefined)
	s, sequential := x.(*sequence)
	d, mapping := x.(*Dict)
	_, textual := str(x)
	_, isBool := x.(bool)
	i, isInt := integer(x)
	_, isFloat := x.(float64)
	_, isBig := x.(*big.Int)
	switch name {
	case "sameas":
		o := other()
		if typeName(x) != typeName(o) {
			return false
		}
		return r.equal(x, o) && (isBool || x == nil || s == o || d == o || isInt || textual)
	case "divisibleby":
		return r.equal(r.binary("%", x, r.bind(name, c, 1, "num")[0]), int64(0))
	}
	if len(c.list)+len(c.names) > 0 {
		r.fail("the test %s takes no argument", name)
	}
	switch name {
	case "defined":
		return !missing
	case "undefined":
		return missing
	case "none":
		return x == nil
	case "boolean":
		return isBool
	case "true":
		return isBool && i == 1
	case "false":
		return isBool && i == 0
	case "integer":
		return isInt && !isBool || isBig
	case "float":
		return isFloat
	case "number":
		return isInt || isFloat || isBig
	case "string":
		return textual
	case "mapping":
		return mapping
	case "iterable":
		return missing && !u.unsafe || sequential || mapping || textual || typeName(x) == "LoopContext"
	case "sequence":
		return missing && !u.unsafe || sequential && s.form <= ranged || mapping || textual
	case "callable":
		_, ok := x.(*function)
		l, again := x.(*loop)
		return ok || again && l != nil || missing
	case "odd", "even":
		return r.equal(r.binary("%", x, int64(2)), toInt(name == "odd"))
	case "upper", "lower":
		text := r.text(x)
		cased := false
		for _, c := range text {
			if unicode.IsTitle(c) || unicode.IsLower(c) && name == "upper" || unicode.IsUpper(c) && name == "lower" {
				return false
			}
			cased = cased || isCased(c)
		}
		return cased
	case "escaped":
		_, ok := x.(markup)
		return ok
	case "filter", "test":
		r.fail("found the test %s", name)
	}
	r.fail("No test named '%s' found.", name)
	return false
}
