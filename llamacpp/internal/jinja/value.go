package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The values of a template are those of Python: nil, bool, int64, *big.Int (which is only shown),
// float64, string, markup, *sequence, *Dict, *namespace, *loop, *function and *undefined.

// markup is a text that [escape] leaves as it is.
type markup string

type form uint8

const (
	list form = iota
	tuple
	ranged    // of range
	view      // of a dictionary
	generator // which can be read once
)

func (f form) String() string {
	return [...]string{"list", "tuple", "range", "dict_items", "generator"}[f]
}

// sequence is a list of values that never changes, except that a generator ends: its values are
// made when they are read.
type sequence struct {
	form  form
	items []any
	make  func() []any // of a generator
}

// Dict is a dictionary in the order of its keys.
type Dict struct {
	keys   []any
	values map[any]any // by hashed keys
}

// NewDict returns a dictionary of names and values, in turns.
func NewDict(of ...any) *Dict {
	d := &Dict{values: make(map[any]any, len(of)/2)}
	for i := 0; i+1 < len(of); i += 2 {
		d.Set(of[i].(string), of[i+1])
	}
	return d
}

// NewList returns a list.
func NewList(items []any) any { return &sequence{form: list, items: items} }

// hashed is the key of a map for a key: 1, 1.0 and True are one. It is false for values that
// Python cannot hash, and for tuples in tuples.
func hashed(key any) (any, bool) {
	switch x := key.(type) {
	case bool:
		return toInt(x), true
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return int64(x), true
		}
		return x, true
	case markup:
		return string(x), true
	case *big.Int:
		return "\x00" + x.String(), true
	case *sequence:
		if x.form != tuple {
			return nil, false
		}
		text := "\x01"
		for _, item := range x.items {
			h, ok := hashed(item)
			if _, nested := item.(*sequence); nested || !ok { // whose cost may double per level
				return nil, false
			}
			text += fmt.Sprintf("%T%q", h, fmt.Sprint(h))
		}
		return text, true
	case *Dict:
		return nil, false
	}
	return key, true
}

// Set sets a value.
func (d *Dict) Set(key string, value any) { d.set(key, value) }

// set reports false for a key that Python cannot hash.
func (d *Dict) set(key, value any) bool {
	h, ok := hashed(key)
	if !ok {
		return false
	}
	if _, there := d.values[h]; !there {
		d.keys = append(d.keys, key)
	}
	d.values[h] = value
	return true
}

func (d *Dict) get(key any) (any, bool) {
	h, ok := hashed(key)
	if !ok {
		return nil, false
	}
	x, ok := d.values[h]
	return x, ok
}

// Get returns a value.
func (d *Dict) Get(key string) (any, bool) { return d.get(key) }

// mostNestedValues bounds lists and dictionaries in each other, in JSON and where they are walked.
const mostNestedValues = 500

// FromJSON returns the value of a JSON text, with objects in their order. It refuses what a decoder
// would change in silence: a name twice in an object, and text that is not Unicode.
func FromJSON(text []byte) (any, error) {
	if found := NotUnicode(text); found != "" {
		return nil, fmt.Errorf("found %s", found)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	x, err := fromJSON(d, mostNestedValues)
	if err == nil && d.More() {
		err = fmt.Errorf("found more than one value")
	}
	return x, err
}

func fromJSON(d *json.Decoder, levels int) (any, error) {
	if levels == 0 {
		return nil, fmt.Errorf("found more than %d levels of lists and objects", mostNestedValues)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch x := t.(type) {
	case json.Number:
		if !strings.ContainsAny(x.String(), ".eE") {
			if i, err := x.Int64(); err == nil {
				return i, nil
			}
			if i, ok := new(big.Int).SetString(x.String(), 10); ok {
				return i, nil
			}
		}
		f, _ := strconv.ParseFloat(x.String(), 64) // too large: infinite, as in Python
		return f, nil
	case json.Delim:
		if x == '[' {
			s := &sequence{}
			for d.More() {
				item, err := fromJSON(d, levels-1)
				if err != nil {
					return nil, err
				}
				s.items = append(s.items, item)
			}
			_, err := d.Token()
			return s, err
		}
		o := NewDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := fromJSON(d, levels-1)
			if err != nil {
				return nil, err
			}
			if _, twice := o.Get(key.(string)); twice {
				return nil, fmt.Errorf("found the name %.40q twice in an object", key)
			}
			o.set(key, value)
		}
		_, err := d.Token()
		return o, err
	}
	return t, nil // nil, bool or string
}

// undefined is a value that is not there. Its use fails with the message, and so does an unsafe
// one's test.
type undefined struct {
	message string
	unsafe  bool
}

type namespace struct{ fields *Dict }

type function struct {
	name string
	call func(r *render, a *call) any
}

// call has the arguments of a call.
type call struct {
	list   []any
	names  []string
	values []any
}

func typeName(x any) string {
	switch x := x.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *sequence:
		return x.form.String()
	case *Dict:
		return "dict"
	case *namespace:
		return "Namespace"
	case *loop:
		return "LoopContext"
	case *undefined:
		return "Undefined"
	}
	return "function"
}

// owner is the name of a value in the message of a missing attribute.
func owner(x any) string {
	if x == nil {
		return "None"
	}
	return typeName(x) + " object"
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// str returns the text of a string.
func str(x any) (string, bool) {
	switch x := x.(type) {
	case string:
		return x, true
	case markup:
		return string(x), true
	}
	return "", false
}

// integer returns the number of an int or a bool.
func integer(x any) (int64, bool) {
	switch x := x.(type) {
	case int64:
		return x, true
	case bool:
		return toInt(x), true
	}
	return 0, false
}

func float(x any) (float64, bool) {
	if f, ok := x.(float64); ok {
		return f, true
	}
	i, ok := integer(x)
	return float64(i), ok
}

func (r *render) truth(x any) bool {
	switch x := x.(type) {
	case nil:
		return false
	case bool:
		return x
	case int64:
		return x != 0
	case float64:
		return x != 0
	case string:
		return x != ""
	case markup:
		return x != ""
	case *sequence:
		return len(x.items) > 0 || x.form == generator
	case *Dict:
		return len(x.keys) > 0
	case *undefined:
		if x.unsafe {
			r.fail("%s", x.message)
		}
		return false
	}
	return true
}

// text is Python's str.
func (r *render) text(x any) string {
	switch x := x.(type) {
	case string:
		return x
	case markup:
		return string(x)
	case *undefined:
		if x.unsafe {
			r.fail("%s", x.message)
		}
		return ""
	case *sequence, *Dict:
		b := &strings.Builder{}
		r.repr(b, x)
		return b.String()
	}
	b := &strings.Builder{}
	r.repr(b, x)
	return b.String()
}

// repr writes Python's repr.
func (r *render) repr(b *strings.Builder, x any) {
	r.spend(1)
	r.walk(1)
	defer r.walk(-1)
	before := b.Len()
	switch x := x.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[x])
	case int64:
		b.WriteString(strconv.FormatInt(x, 10))
	case *big.Int:
		b.WriteString(x.String())
	case float64:
		b.WriteString(floatText(x, "inf", "nan"))
	case string:
		quote(b, x)
	case markup:
		b.WriteString("Markup(")
		quote(b, string(x))
		b.WriteByte(')')
	case *undefined:
		b.WriteString("Undefined")
	case *sequence:
		open, end := "[", "]"
		switch x.form {
		case tuple:
			if open, end = "(", ")"; len(x.items) == 1 {
				end = ",)"
			}
		case list:
		default:
			r.fail("found a %v as text, expected a list: see the filter list", x.form)
		}
		b.WriteString(open)
		for i, item := range x.items {
			if i > 0 {
				b.WriteString(", ")
			}
			r.repr(b, item)
		}
		b.WriteString(end)
	case *Dict:
		b.WriteByte('{')
		for i, key := range x.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			r.repr(b, key)
			b.WriteString(": ")
			value, _ := x.get(key)
			r.repr(b, value)
		}
		b.WriteByte('}')
	default:
		r.fail("found a %s as text", typeName(x))
	}
	switch x.(type) {
	case *sequence, *Dict:
	default:
		r.hold(b.Len() - before)
	}
}

// floatText is the repr of a float.
func floatText(x float64, inf, nan string) string {
	switch {
	case math.IsNaN(x):
		return nan
	case math.IsInf(x, 1):
		return inf
	case math.IsInf(x, -1):
		return "-" + inf
	}
	s := strconv.FormatFloat(x, 'e', -1, 64)
	at := strings.IndexByte(s, 'e')
	if e, _ := strconv.Atoi(s[at+1:]); e >= -4 && e < 16 {
		s = strconv.FormatFloat(x, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
	}
	return s
}

func quote(b *strings.Builder, s string) {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b.WriteByte(q)
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f || r >= 0x80 && r < 0x100 && !unicode.IsPrint(r):
			fmt.Fprintf(b, `\x%02x`, r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteByte(q)
}

// equal is Python's ==.
func (r *render) equal(a, b any) bool {
	r.spend(1)
	r.walk(1)
	defer r.walk(-1)
	if x, ok := float(a); ok {
		y, ok := float(b)
		return ok && x == y
	}
	if x, ok := str(a); ok {
		y, ok := str(b)
		r.spend(min(len(x), len(y)) / 32)
		return ok && x == y
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case *big.Int:
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	case *sequence:
		y, ok := b.(*sequence)
		if !ok || x.form != y.form || len(x.items) != len(y.items) || x.form > ranged {
			return ok && x == y
		}
		for i := range x.items {
			if !r.equal(x.items[i], y.items[i]) {
				return false
			}
		}
		return true
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		for _, key := range x.keys {
			p, _ := x.get(key)
			if q, there := y.get(key); !there || !r.equal(p, q) {
				return false
			}
		}
		return true
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	}
	return a == b
}

// less is Python's <.
func (r *render) less(op string, a, b any) bool {
	r.spend(1)
	r.walk(1)
	defer r.walk(-1)
	r.defined(a)
	r.defined(b)
	if x, ok := float(a); ok {
		if y, ok := float(b); ok {
			return x < y
		}
	} else if x, ok := str(a); ok {
		if y, ok := str(b); ok {
			r.spend(min(len(x), len(y)) / 32)
			return x < y
		}
	} else if x, ok := a.(*sequence); ok && x.form <= tuple {
		if y, ok := b.(*sequence); ok && y.form == x.form {
			for i := range min(len(x.items), len(y.items)) {
				if !r.equal(x.items[i], y.items[i]) {
					return r.less(op, x.items[i], y.items[i])
				}
			}
			return len(x.items) < len(y.items)
		}
	}
	r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return false
}

// contains is Python's "in".
func (r *render) contains(in, x any) bool {
	if s, ok := str(in); ok {
		part, ok := str(x)
		if !ok {
			r.defined(x)
			r.fail("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		r.spend(len(s) / 32)
		return strings.Contains(s, part)
	}
	switch in := in.(type) {
	case *Dict:
		_, ok := in.get(x)
		if _, can := hashed(x); !can {
			r.fail("unhashable type: '%s'", typeName(x))
		}
		return ok
	case *sequence, *undefined:
		for _, item := range r.items(in) {
			if r.equal(item, x) {
				return true
			}
		}
		return false
	}
	r.fail("argument of type '%s' is not iterable", typeName(in))
	return false
}

// items returns the items of a value, as for loops have them.
func (r *render) items(x any) []any {
	if s, ok := str(x); ok {
		n := utf8.RuneCountInString(s)
		r.hold(20 * n)
		items := make([]any, 0, n)
		for _, c := range s {
			items = append(items, string(c))
		}
		return items
	}
	switch x := x.(type) {
	case *sequence:
		if x.make != nil {
			items := x.make()
			x.items, x.make = nil, func() []any { return nil }
			return items
		}
		return x.items
	case *Dict:
		return x.keys
	case *undefined:
		if x.unsafe {
			r.fail("%s", x.message)
		}
		return nil
	}
	r.fail("'%s' object is not iterable", typeName(x))
	return nil
}

// defined fails for a value that is not there.
func (r *render) defined(x any) any {
	if u, ok := x.(*undefined); ok {
		r.fail("%s", u.message)
	}
	return x
}

func (r *render) number(x any) float64 {
	f, ok := float(r.defined(x))
	if !ok {
		r.fail("found a %s, expected a number", typeName(x))
	}
	return f
}

func (r *render) integer(x any) int {
	i, ok := integer(r.defined(x))
	if !ok {
		r.fail("'%s' object cannot be interpreted as an integer", typeName(x))
	}
	return int(max(min(i, math.MaxInt32), math.MinInt32))
}

// json writes Python's json.dumps.
type jsonWriter struct {
	*render
	strings.Builder
	ascii, sorted bool
	item, key     string // separators
	indent        string
	lines         bool
}

func (w *jsonWriter) line(depth int) {
	if w.lines {
		w.hold(1 + depth*len(w.indent))
		w.WriteByte('\n')
		for range depth {
			w.WriteString(w.indent)
		}
	}
}

func (w *jsonWriter) write(x any, depth int) {
	w.spend(1)
	w.walk(1)
	defer w.walk(-1)
	before := w.Len()
	if s, ok := str(x); ok {
		w.hold(len(s))
		w.quote(s)
		w.hold(max(0, w.Len()-before-len(s)))
		return
	}
	switch x := x.(type) {
	case nil:
		w.WriteString("null")
	case bool:
		w.WriteString(strconv.FormatBool(x))
	case int64:
		w.WriteString(strconv.FormatInt(x, 10))
	case *big.Int:
		w.WriteString(x.String())
	case float64:
		w.WriteString(floatText(x, "Infinity", "NaN"))
	case *sequence:
		if x.form > tuple {
			w.fail("Object of type %v is not JSON serializable", x.form)
		}
		w.WriteByte('[')
		for i, item := range x.items {
			if i > 0 {
				w.WriteString(w.item)
			}
			w.line(depth + 1)
			w.write(item, depth+1)
		}
		if len(x.items) > 0 {
			w.line(depth)
		}
		w.WriteByte(']')
		w.hold(2 + len(w.item)*len(x.items))
		return
	case *Dict:
		keys := x.keys
		if w.sorted {
			keys = w.sort(keys, false, func(x any) any { return x })
		}
		w.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				w.WriteString(w.item)
			}
			w.line(depth + 1)
			switch k := key.(type) {
			case string, markup:
				w.write(k, 0)
			case *sequence:
				w.fail("keys must be str, int, float, bool or None, not %v", k.form)
			default:
				w.WriteByte('"')
				w.write(k, 0)
				w.WriteByte('"')
			}
			w.WriteString(w.key)
			value, _ := x.get(key)
			w.write(value, depth+1)
		}
		if len(keys) > 0 {
			w.line(depth)
		}
		w.WriteByte('}')
		w.hold(2 + (len(w.item)+len(w.key))*len(keys))
		return
	default:
		w.fail("Object of type %s is not JSON serializable", typeName(x))
	}
	w.hold(w.Len() - before)
}

func (w *jsonWriter) quote(s string) {
	w.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.WriteByte('\\')
			w.WriteRune(r)
		case r == '\n':
			w.WriteString(`\n`)
		case r == '\r':
			w.WriteString(`\r`)
		case r == '\t':
			w.WriteString(`\t`)
		case r == '\b':
			w.WriteString(`\b`)
		case r == '\f':
			w.WriteString(`\f`)
		case r < 0x20 || w.ascii && r >= 0x7f && r < 0x10000 && r != 0x7f:
			fmt.Fprintf(w, `\u%04x`, r)
		case w.ascii && r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(w, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			w.WriteRune(r)
		}
	}
	w.WriteByte('"')
}

// Items returns the items of a list.
func Items(x any) ([]any, bool) {
	s, ok := x.(*sequence)
	if !ok || s.form != list {
		return nil, false
	}
	return s.items, true
}

// JSON returns a value as Python's json.dumps does.
func JSON(x any) string {
	w := &jsonWriter{render: &render{steps: math.MaxInt, bytes: math.MaxInt}, item: ", ", key: ": "}
	w.write(x, 0)
	return w.String()
}
