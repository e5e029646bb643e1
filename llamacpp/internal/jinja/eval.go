package jinja

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// scope has the variables of a block; assignments go to the innermost one.
type scope struct {
	outer     *scope
	variables map[string]any
}

func (s *scope) set(name string, x any) {
	if s.variables == nil {
		s.variables = map[string]any{}
	}
	s.variables[name] = x
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.outer {
		if x, ok := s.variables[name]; ok {
			return x, true
		}
	}
	return nil, false
}

type jump uint8

const (
	goesOn jump = iota
	breaks
	continues
)

type statement interface {
	run(r *render, s *scope) jump
}

func (r *render) run(body []statement, s *scope) jump {
	for _, n := range body {
		r.spend(1)
		if j := n.run(r, s); j != goesOn {
			return j
		}
	}
	return goesOn
}

type textNode struct{ text string }

func (n *textNode) run(r *render, _ *scope) jump {
	r.write(n.text)
	return goesOn
}

type outputNode struct {
	line int
	x    expression
}

func (n *outputNode) run(r *render, s *scope) jump {
	r.line = n.line
	r.write(r.text(r.eval(n.x, s)))
	return goesOn
}

type jumpNode struct{ to jump }

func (n *jumpNode) run(*render, *scope) jump { return n.to }

type condition struct {
	line int
	x    expression
}

type ifNode struct {
	conditions []condition
	bodies     [][]statement
	otherwise  []statement
}

func (n *ifNode) run(r *render, s *scope) jump {
	for i, c := range n.conditions {
		r.line = c.line
		if r.truth(r.eval(c.x, s)) {
			return r.run(n.bodies[i], s)
		}
	}
	return r.run(n.otherwise, s)
}

// target is what a value is assigned to.
type target struct {
	name, field string
	list        []target
}

func (r *render) assign(t target, x any, s *scope) {
	switch {
	case t.list != nil:
		items := r.items(x)
		if len(items) < len(t.list) {
			r.fail("not enough values to unpack (expected %d, got %d)", len(t.list), len(items))
		} else if len(items) > len(t.list) {
			r.fail("too many values to unpack (expected %d)", len(t.list))
		}
		for i := range t.list {
			r.assign(t.list[i], items[i], s)
		}
	case t.field != "":
		of, _ := s.get(t.name)
		ns, ok := of.(*namespace)
		if !ok {
			r.fail("cannot assign attribute on non-namespace object")
		}
		r.name(t.field)
		r.hold(32 + len(t.field))
		ns.fields.set(t.field, x)
	default:
		s.set(t.name, x)
	}
}

// name refuses names of a namespace that transformers refuses.
func (r *render) name(name string) {
	if strings.HasPrefix(name, "_") {
		r.fail("found the attribute %q of a namespace, expected none with an underscore first", name)
	}
}

type forNode struct {
	line            int
	target          target
	over, test      expression
	recursive       bool
	body, otherwise []statement
}

// loop is the variable of a loop.
type loop struct {
	index, length int
	items         []any
	depth         int
	changed       []any
	again         func(items any, depth int) string // of a recursive loop
}

func (n *forNode) run(r *render, s *scope) jump {
	r.line = n.line
	n.iterate(r, s, r.eval(n.over, s), 1)
	return goesOn
}

func (n *forNode) iterate(r *render, s *scope, over any, depth int) {
	items := r.items(over)
	if n.test != nil {
		var kept []any
		for _, item := range items {
			r.spend(1)
			inner := &scope{outer: s}
			r.assign(n.target, item, inner)
			if r.truth(r.eval(n.test, inner)) {
				kept = append(kept, item)
			}
		}
		r.hold(16 * len(kept))
		items = kept
	}
	l := &loop{length: len(items), items: items, depth: depth}
	if n.recursive {
		l.again = func(items any, depth int) string {
			defer r.deeper()()
			return r.capture(func() { n.iterate(r, s, items, depth) })
		}
	}
	for i, item := range items {
		r.spend(1)
		l.index = i
		inner := &scope{outer: s}
		inner.set("loop", l)
		r.assign(n.target, item, inner)
		if r.run(n.body, inner) == breaks {
			break
		}
	}
	if len(items) == 0 {
		r.run(n.otherwise, &scope{outer: s})
	}
}

type setNode struct {
	line   int
	target target
	value  expression
	block  bool
	filter expression
	body   []statement
}

func (n *setNode) run(r *render, s *scope) jump {
	r.line = n.line
	if !n.block {
		r.assign(n.target, r.eval(n.value, s), s)
		return goesOn
	}
	var x any = r.capture(func() { r.run(n.body, &scope{outer: s}) })
	if n.filter != nil {
		x = r.filtered(n.filter, x, s)
	}
	r.assign(n.target, x, s)
	return goesOn
}

// filtered applies a chain of filters to a text.
func (r *render) filtered(x expression, to any, s *scope) any {
	f := x.(*filterExpr)
	if f.of != nil {
		to = r.filtered(f.of, to, s)
	}
	return r.filter(f.name, to, f.arguments.eval(r, s))
}

type filterNode struct {
	line   int
	filter expression
	body   []statement
}

func (n *filterNode) run(r *render, s *scope) jump {
	text := r.capture(func() { r.run(n.body, &scope{outer: s}) })
	r.line = n.line
	r.write(r.text(r.filtered(n.filter, text, s)))
	return goesOn
}

type withNode struct {
	line    int
	targets []target
	values  []expression
	body    []statement
}

func (n *withNode) run(r *render, s *scope) jump {
	r.line = n.line
	inner := &scope{outer: s}
	for i, x := range n.values {
		r.assign(n.targets[i], r.eval(x, s), inner)
	}
	return r.run(n.body, inner)
}

type macroNode struct {
	line                   int
	name                   string
	params                 []string
	defaults               []expression // of the last params
	body                   []statement
	varargs, kwargs, calls bool // whether the body reads these names
}

func (n *macroNode) run(r *render, s *scope) jump {
	s.set(n.name, n.function(s))
	return goesOn
}

func (n *macroNode) function(s *scope) *function {
	return &function{n.name, func(r *render, c *call) any {
		defer r.deeper()()
		inner := &scope{outer: s}
		for i, name := range n.params {
			at := slices.Index(c.names, name)
			switch first := i - len(n.params) + len(n.defaults); {
			case i < len(c.list):
				if at >= 0 {
					r.fail("macro '%s' got multiple values for argument '%s'", n.name, name)
				}
				inner.set(name, c.list[i])
			case at >= 0:
				inner.set(name, c.values[at])
			case first >= 0:
				inner.set(name, r.eval(n.defaults[first], inner))
			default:
				inner.set(name, &undefined{message: "parameter '" + name + "' was not provided"})
			}
		}
		var rest []any
		if len(c.list) > len(n.params) {
			rest = c.list[len(n.params):]
		}
		if !n.varargs && len(rest) > 0 {
			r.fail("macro '%s' takes not more than %d argument(s)", n.name, len(n.params))
		}
		fields := NewDict()
		inner.set("caller", &undefined{message: "No caller defined"})
		for i, name := range c.names {
			switch {
			case slices.Contains(n.params, name):
			case name == "caller" && n.calls:
				inner.set("caller", c.values[i])
			case n.kwargs:
				fields.set(name, c.values[i])
			default:
				r.fail("macro '%s' takes no keyword argument '%s'", n.name, name)
			}
		}
		inner.set("varargs", &sequence{form: tuple, items: rest})
		inner.set("kwargs", fields)
		line := r.line
		text := r.capture(func() { r.run(n.body, inner) })
		r.line = line
		return text
	}}
}

type callNode struct {
	line   int
	call   *callExpr
	caller macroNode
}

func (n *callNode) run(r *render, s *scope) jump {
	r.line = n.line
	c := n.call.arguments.eval(r, s)
	c.names, c.values = append(c.names, "caller"), append(c.values, n.caller.function(s))
	r.write(r.text(r.call(r.eval(n.call.of, s), c)))
	return goesOn
}

type expression interface {
	eval(r *render, s *scope) any
}

func (r *render) eval(x expression, s *scope) any {
	r.spend(1)
	return x.eval(r, s)
}

type constExpr struct{ value any }

func (x *constExpr) eval(*render, *scope) any { return x.value }

type nameExpr struct{ name string }

func (x *nameExpr) eval(r *render, s *scope) any {
	if v, ok := s.get(x.name); ok {
		return v
	}
	if v, ok := r.globals[x.name]; ok {
		return v
	}
	if f, ok := functions[x.name]; ok {
		return f
	}
	return &undefined{message: "'" + x.name + "' is undefined"}
}

type listExpr struct {
	form  form
	items []expression
}

func (x *listExpr) eval(r *render, s *scope) any {
	items := make([]any, len(x.items))
	for i, item := range x.items {
		items[i] = r.eval(item, s)
	}
	return r.list(x.form, items)
}

type dictExpr struct{ keys, values []expression }

func (x *dictExpr) eval(r *render, s *scope) any {
	d := NewDict()
	for i := range x.keys {
		r.insert(d, r.eval(x.keys[i], s), r.eval(x.values[i], s))
	}
	return d
}

// insert sets a value of a dictionary.
func (r *render) insert(d *Dict, key, value any) {
	r.hold(64)
	if text, ok := str(key); ok {
		r.spend(len(text) / 32)
	}
	if !d.set(key, value) {
		r.fail("unhashable type: '%s'", typeName(key))
	}
}

type condExpr struct{ test, then, otherwise expression }

func (x *condExpr) eval(r *render, s *scope) any {
	if r.truth(r.eval(x.test, s)) {
		return r.eval(x.then, s)
	}
	if x.otherwise == nil {
		return &undefined{message: "the inline if-expression evaluated to false and no else section was defined"}
	}
	return r.eval(x.otherwise, s)
}

type logicExpr struct {
	or          bool
	left, right expression
}

func (x *logicExpr) eval(r *render, s *scope) any {
	left := r.eval(x.left, s)
	if r.truth(left) == x.or {
		return left
	}
	return r.eval(x.right, s)
}

type notExpr struct{ x expression }

func (x *notExpr) eval(r *render, s *scope) any { return !r.truth(r.eval(x.x, s)) }

type compareExpr struct {
	first expression
	ops   []string
	rest  []expression
}

func (x *compareExpr) eval(r *render, s *scope) any {
	left := r.eval(x.first, s)
	for i, op := range x.ops {
		right := r.eval(x.rest[i], s)
		if !r.compare(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (r *render) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "<":
		return r.less(op, a, b)
	case ">":
		return r.less(op, b, a)
	case "<=":
		return r.less(op, a, b) || r.equal(a, b)
	case ">=":
		return r.less(op, b, a) || r.equal(a, b)
	case "in":
		return r.contains(b, a)
	}
	return !r.contains(b, a)
}

type concatExpr struct{ list []expression }

func (x *concatExpr) eval(r *render, s *scope) any {
	var b strings.Builder
	for _, part := range x.list {
		b.WriteString(r.made(r.text(r.eval(part, s))))
	}
	return b.String()
}

type signExpr struct {
	line     int
	negative bool
	x        expression
}

func (x *signExpr) eval(r *render, s *scope) any {
	v := r.defined(r.eval(x.x, s))
	if f, ok := v.(float64); ok {
		if x.negative {
			f = -f
		}
		return f
	}
	i, ok := integer(v)
	if !ok {
		r.fail("bad operand type for unary operator: '%s'", typeName(v))
	}
	if x.negative {
		return r.subtract(0, i)
	}
	return i
}

type binaryExpr struct {
	line        int
	op          string
	left, right expression
}

func (x *binaryExpr) eval(r *render, s *scope) any {
	left, right := r.eval(x.left, s), r.eval(x.right, s)
	r.line = x.line
	return r.binary(x.op, left, right)
}

func (r *render) binary(op string, a, b any) any {
	r.defined(a)
	if text, ok := str(a); ok && op == "%" {
		return r.percent(text, b)
	}
	r.defined(b)
	wrong := func() any {
		r.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
		return nil
	}
	if op == "*" {
		if _, ok := integer(a); ok {
			if _, ok := integer(b); !ok {
				if _, ok := b.(float64); !ok {
					a, b = b, a
				}
			}
		}
		if n, ok := integer(b); ok {
			n = max(0, n)
			if text, ok := str(a); ok {
				r.repeats(len(text), n)
				return strings.Repeat(text, int(n))
			}
			if x, ok := a.(*sequence); ok && x.form <= tuple {
				r.repeats(16*len(x.items), n)
				return &sequence{form: x.form, items: slices.Repeat(x.items, int(n))}
			}
		}
	}
	if op == "+" {
		if x, ok := str(a); ok {
			y, ok := str(b)
			if !ok {
				r.fail(`can only concatenate str (not "%s") to str`, typeName(b))
			}
			_, first := a.(markup)
			_, second := b.(markup)
			switch {
			case first && !second:
				return markup(r.made(x + escape(y)))
			case second && !first:
				return markup(r.made(escape(x) + y))
			case first:
				return markup(r.made(x + y))
			}
			r.hold(len(x) + len(y))
			return x + y
		}
		if x, ok := a.(*sequence); ok && x.form <= tuple {
			y, ok := b.(*sequence)
			if !ok || y.form != x.form {
				r.fail(`can only concatenate %v (not "%s") to %[1]v`, x.form, typeName(b))
			}
			return r.list(x.form, slices.Concat(x.items, y.items))
		}
	}
	i, first := integer(a)
	j, second := integer(b)
	if first && second && op != "/" {
		switch op {
		case "+":
			if c := i + j; (c > i) == (j > 0) {
				return c
			}
			r.fail("found an integer of more than 64 bits")
		case "-":
			return r.subtract(i, j)
		case "*":
			c := i * j
			if i != 0 && (c/i != j || i == -1 && j == math.MinInt64) {
				r.fail("found an integer of more than 64 bits")
			}
			return c
		case "//", "%":
			if j == 0 {
				r.fail("integer division or modulo by zero")
			}
			q, m := i/j, i%j
			if m != 0 && (m < 0) != (j < 0) {
				q, m = q-1, m+j
			}
			if op == "%" {
				return m
			}
			return q
		case "**":
			if j >= 0 {
				return r.power(i, j)
			}
		}
	}
	x, ok := float(a)
	y, also := float(b)
	if !ok || !also {
		return wrong()
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		return math.Pow(x, y)
	}
	if y == 0 {
		r.fail("division by zero")
	}
	switch op {
	case "/":
		return x / y
	case "//":
		return math.Floor(x / y)
	}
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return m
}

func (r *render) repeats(size int, n int64) {
	if size > 0 && n > int64(math.MaxInt32/size) {
		r.hold(math.MaxInt)
	}
	r.hold(size * int(n))
}

func (r *render) subtract(i, j int64) any {
	c := i - j
	if (c < i) != (j > 0) {
		r.fail("found an integer of more than 64 bits")
	}
	return c
}

func (r *render) power(i, j int64) any {
	if j > 64 && i != 0 && i != 1 && i != -1 {
		r.fail("found an integer of more than 64 bits")
	} else if j > 64 {
		j = 2 + j&1
	}
	c := new(big.Int).Exp(big.NewInt(i), big.NewInt(j), nil)
	if !c.IsInt64() {
		r.fail("found an integer of more than 64 bits")
	}
	return c.Int64()
}

type attributeExpr struct {
	line int
	of   expression
	name string
}

func (x *attributeExpr) eval(r *render, s *scope) any {
	of := r.eval(x.of, s)
	r.line = x.line
	return r.attribute(of, x.name)
}

func missing(of any, name string) *undefined {
	return &undefined{message: "'" + owner(of) + "' has no attribute '" + name + "'"}
}

// attribute is x.name: a method, or the value of a key.
func (r *render) attribute(of any, name string) any {
	r.defined(of)
	if m := r.method(of, name); m != nil {
		return m
	}
	switch x := of.(type) {
	case *Dict:
		if v, ok := x.get(name); ok {
			return v
		}
	case *namespace:
		if v, ok := x.fields.get(name); ok {
			return v
		}
	case *function:
		r.fail("found the attribute %q of a function", name)
	case *loop:
		if v, ok := x.field(name); ok {
			return v
		}
	}
	return missing(of, name)
}

// item is x[key].
func (r *render) item(of, key any) any {
	r.defined(of)
	if x, ok := of.(*Dict); ok {
		if v, ok := x.get(key); ok {
			return v
		}
	}
	if i, ok := integer(key); ok {
		if text, is := str(of); is {
			if v, ok := r.character(text, i); ok {
				return v
			}
		} else if x, ok := of.(*sequence); ok && x.form <= ranged {
			if i < 0 {
				i += int64(len(x.items))
			}
			if i >= 0 && i < int64(len(x.items)) {
				return x.items[i]
			}
		}
		return &undefined{message: owner(of) + " has no element " + r.text(key)}
	}
	if name, ok := str(key); ok {
		if _, is := of.(*Dict); !is {
			return r.attribute(of, name)
		}
		if m := r.method(of, name); m != nil {
			return m
		}
		return missing(of, name)
	}
	return &undefined{message: owner(of) + " has no element " + typeName(key)}
}

// character returns a character of a text.
func (r *render) character(text string, i int64) (string, bool) {
	r.spend(len(text) / 32)
	n := int64(utf8.RuneCountInString(text))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return "", false
	}
	for at, c := range text {
		if i == 0 {
			return text[at : at+utf8.RuneLen(c)], true
		}
		i--
	}
	return "", false
}

type itemExpr struct {
	line    int
	of, key expression
}

func (x *itemExpr) eval(r *render, s *scope) any {
	of, key := r.eval(x.of, s), r.eval(x.key, s)
	r.line = x.line
	return r.item(of, key)
}

type sliceExpr struct {
	line int
	of   expression
	at   [3]expression // begin, end and step
}

func (x *sliceExpr) eval(r *render, s *scope) any {
	of := r.defined(r.eval(x.of, s))
	r.line = x.line
	var at [3]any
	for i, e := range x.at {
		if e != nil {
			at[i] = r.eval(e, s)
		}
	}
	if text, ok := str(of); ok {
		r.hold(4 * len(text))
		runes := []rune(text)
		begin, end, step := r.bounds(at, len(runes))
		var cut []rune
		for i := begin; step > 0 && i < end || step < 0 && i > end; i += step {
			cut = append(cut, runes[i])
		}
		return string(cut)
	}
	v, ok := of.(*sequence)
	if !ok || v.form > ranged {
		return &undefined{message: owner(of) + " has no element slice"}
	}
	begin, end, step := r.bounds(at, len(v.items))
	var cut []any
	switch {
	case step == 1:
		cut = v.items[begin:max(begin, end)] // lists never change
	default:
		for i := begin; step > 0 && i < end || step < 0 && i > end; i += step {
			cut = append(cut, v.items[i])
		}
		r.hold(16 * len(cut))
	}
	r.hold(24)
	return &sequence{form: v.form, items: cut}
}

// bounds are Python's bounds of a slice of n items.
func (r *render) bounds(at [3]any, n int) (begin, end, step int) {
	step = 1
	if at[2] != nil {
		if step = r.integer(at[2]); step == 0 {
			r.fail("slice step cannot be zero")
		}
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(x any, none int) int {
		if x == nil {
			return none
		}
		i := r.integer(x)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if step > 0 {
		return bound(at[0], low), bound(at[1], high), step
	}
	return bound(at[0], high), bound(at[1], low), step
}

// arguments are the arguments of a call.
type arguments struct {
	list            []expression
	names           []string
	values          []expression
	dynamic, fields expression // *list and **dict
}

func (a *arguments) eval(r *render, s *scope) *call {
	c := &call{names: a.names}
	for _, x := range a.list {
		c.list = append(c.list, r.eval(x, s))
	}
	for _, x := range a.values {
		c.values = append(c.values, r.eval(x, s))
	}
	if a.dynamic != nil {
		c.list = append(c.list, r.items(r.eval(a.dynamic, s))...)
	}
	if a.fields != nil {
		d, ok := r.eval(a.fields, s).(*Dict)
		if !ok {
			r.fail("found a %s after **, expected a dict", typeName(d))
		}
		c.names = slices.Clone(c.names)
		for _, key := range d.keys {
			name, ok := str(key)
			if !ok || slices.Contains(c.names, name) {
				r.fail("found the keyword %v twice, or not a string", key)
			}
			v, _ := d.get(key)
			c.names, c.values = append(c.names, name), append(c.values, v)
		}
	}
	r.hold(16 * (len(c.list) + len(c.values)))
	return c
}

type callExpr struct {
	line int
	of   expression
	arguments
}

func (x *callExpr) eval(r *render, s *scope) any {
	of := r.eval(x.of, s)
	c := x.arguments.eval(r, s)
	r.line = x.line
	return r.call(of, c)
}

func (r *render) call(of any, c *call) any {
	r.defined(of)
	switch f := of.(type) {
	case *function:
		return f.call(r, c)
	case *loop:
		if f.again == nil {
			r.fail("The loop must have the 'recursive' marker to be called recursively.")
		}
		return f.again(r.bind("loop", c, 1, "iterable")[0], f.depth+1)
	}
	r.fail("'%s' object is not callable", typeName(of))
	return nil
}

type filterExpr struct {
	line int
	of   expression
	name string
	arguments
}

func (x *filterExpr) eval(r *render, s *scope) any {
	of := r.eval(x.of, s)
	c := x.arguments.eval(r, s)
	r.line = x.line
	return r.filter(x.name, of, c)
}

type testExpr struct {
	line int
	of   expression
	name string
	arguments
}

func (x *testExpr) eval(r *render, s *scope) any {
	of := r.eval(x.of, s)
	c := x.arguments.eval(r, s)
	r.line = x.line
	return r.test(x.name, of, c)
}

// field returns a field of a loop, false if it has none of the name.
func (l *loop) field(name string) (any, bool) {
	i, n := int64(l.index), int64(l.length)
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return n - i, true
	case "revindex0":
		return n - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return i == n-1, true
	case "length":
		return n, true
	case "depth":
		return int64(l.depth), true
	case "depth0":
		return int64(l.depth - 1), true
	case "previtem":
		if i == 0 {
			return &undefined{message: "there is no previous item"}, true
		}
		return l.items[i-1], true
	case "nextitem":
		if i == n-1 {
			return &undefined{message: "there is no next item"}, true
		}
		return l.items[i+1], true
	case "cycle":
		return &function{name, func(r *render, c *call) any {
			if len(c.list) == 0 {
				r.fail("no items for cycling given")
			}
			return c.list[l.index%len(c.list)]
		}}, true
	case "changed":
		return &function{name, func(r *render, c *call) any {
			changed := l.changed == nil || !r.equal(&sequence{form: list, items: l.changed}, &sequence{form: list, items: c.list})
			l.changed = append([]any{}, c.list...)
			return changed
		}}, true
	}
	return nil, false
}
