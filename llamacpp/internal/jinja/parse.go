package jinja

import (
	"slices"
	"strings"
)

const mostNested = 150 // tags, brackets and operators in each other

type parser struct {
	tokens []token
	at     int
	nested int
	loops  int      // that break and continue may end
	names  []string // that were read
}

func (p *parser) current() *token { return &p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if p.at+1 < len(p.tokens) {
		p.at++
	}
	return t
}

func (p *parser) is(k kind, texts ...string) bool {
	t := p.current()
	return t.kind == k && (len(texts) == 0 || slices.Contains(texts, t.text))
}

func (p *parser) skip(k kind, text string) bool {
	if p.is(k, text) {
		p.next()
		return true
	}
	return false
}

func (p *parser) op(text string) bool   { return p.skip(operator, text) }
func (p *parser) word(text string) bool { return p.skip(nameToken, text) }

func (p *parser) expect(k kind, text string) token {
	if t := p.current(); t.kind != k || text != "" && t.text != text {
		want := "'" + text + "'"
		if text == "" {
			want = map[kind]string{nameToken: "a name", blockEnd: "the end of the tag", variableEnd: "the end of the tag"}[k]
		}
		failAt(t.line, "found %v, expected %s", t, want)
	}
	return p.next()
}

// deeper bounds the recursion. Its result ends the level.
func (p *parser) deeper() func() {
	if p.nested++; p.nested > mostNested {
		failAt(p.current().line, "found more than %d levels of tags and brackets", mostNested)
	}
	return func() { p.nested-- }
}

// body reads statements up to a tag with one of the words, which it leaves to the caller; without
// words to the end.
func (p *parser) body(ends ...string) (list []statement) {
	defer p.deeper()()
	for {
		t := p.current()
		switch t.kind {
		case endOfText:
			if len(ends) > 0 {
				failAt(t.line, "found %v, expected %s", t, strings.Join(ends, " or "))
			}
			return list
		case dataToken:
			list = append(list, &textNode{p.next().text})
		case variableBegin:
			p.next()
			list = append(list, &outputNode{t.line, p.tuple(true)})
			p.expect(variableEnd, "")
		default:
			p.next()
			if p.is(nameToken, ends...) && len(ends) > 0 {
				return list
			}
			list = append(list, p.statement())
			p.expect(blockEnd, "")
		}
	}
}

// block reads the end of a tag, a body, and the word of its end.
func (p *parser) block(ends ...string) []statement {
	p.expect(blockEnd, "")
	return p.body(ends...)
}

func (p *parser) statement() statement {
	t := p.expect(nameToken, "")
	switch t.text {
	case "if":
		return p.parseIf(t.line)
	case "for":
		return p.parseFor(t.line)
	case "set":
		return p.parseSet(t.line)
	case "macro":
		n := &macroNode{line: t.line, name: p.expect(nameToken, "").text}
		n.params, n.defaults = p.signature()
		p.macro(n, "endmacro")
		return n
	case "call":
		n := &callNode{line: t.line}
		n.caller.name, n.caller.line = "caller", t.line
		if p.is(operator, "(") {
			n.caller.params, n.caller.defaults = p.signature()
		}
		x, ok := p.expression(true).(*callExpr)
		if !ok {
			failAt(t.line, "found call without a call")
		}
		n.call = x
		p.macro(&n.caller, "endcall")
		return n
	case "filter":
		n := &filterNode{line: t.line, filter: p.filters(nil, true)}
		n.body = p.block("endfilter")
		p.next()
		return n
	case "generation":
		n := &withNode{line: t.line}
		n.body = p.routine("endgeneration")
		return n
	case "with":
		n := &withNode{line: t.line}
		for !p.is(blockEnd) {
			if len(n.targets) > 0 {
				p.expect(operator, ",")
			}
			n.targets = append(n.targets, p.target(false))
			p.expect(operator, "=")
			n.values = append(n.values, p.expression(true))
		}
		n.body = p.block("endwith")
		p.next()
		return n
	case "break", "continue":
		if p.loops == 0 {
			failAt(t.line, "found %s outside a loop", t.text)
		}
		if t.text == "break" {
			return &jumpNode{breaks}
		}
		return &jumpNode{continues}
	case "include", "import", "from", "extends", "block":
		failAt(t.line, "found %s, expected a template of one file", t.text)
	}
	failAt(t.line, "found the tag %q", t.text)
	return nil
}

// routine reads a body that is a function: no loop around it can be ended from inside.
func (p *parser) routine(end string) []statement {
	loops := p.loops
	p.loops = 0
	body := p.block(end)
	p.next()
	p.loops = loops
	return body
}

// macro reads the body of a macro. It takes more arguments than it names only if it reads the names
// that have the rest.
func (p *parser) macro(n *macroNode, end string) {
	before := len(p.names)
	n.body = p.routine(end)
	read := p.names[before:]
	n.varargs, n.kwargs, n.calls = slices.Contains(read, "varargs"), slices.Contains(read, "kwargs"), slices.Contains(read, "caller")
}

func (p *parser) parseIf(line int) statement {
	n := &ifNode{}
	for {
		n.conditions = append(n.conditions, condition{line, p.tuple(false)})
		n.bodies = append(n.bodies, p.block("elif", "else", "endif"))
		t := p.next()
		if t.text == "elif" {
			line = t.line
			continue
		}
		if t.text == "else" {
			n.otherwise = p.block("endif")
			p.next()
		}
		return n
	}
}

func (p *parser) parseFor(line int) statement {
	n := &forNode{line: line, target: p.target(false)}
	p.expect(nameToken, "in")
	n.over = p.tuple(false, "recursive")
	if p.word("if") {
		n.test = p.expression(true)
	}
	n.recursive = p.word("recursive")
	p.loops++
	n.body = p.block("endfor", "else")
	p.loops--
	if p.next().text == "else" {
		n.otherwise = p.block("endfor")
		p.next()
	}
	return n
}

func (p *parser) parseSet(line int) statement {
	n := &setNode{line: line, target: p.target(true)}
	if p.op("=") {
		n.value = p.tuple(true)
		return n
	}
	if p.is(operator, "|") {
		n.filter = p.filters(nil, false)
	}
	n.body = p.block("endset")
	n.block = true
	p.next()
	return n
}

// target reads what is assigned to: a name, a field of a namespace, or a tuple of targets.
func (p *parser) target(fields bool) target {
	one := func() target {
		if p.op("(") {
			defer p.deeper()()
			t := p.target(fields)
			p.expect(operator, ")")
			return t
		}
		t := p.expect(nameToken, "")
		if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, t.text) {
			failAt(t.line, "found an assignment to %s", t.text)
		}
		if fields && p.op(".") {
			return target{name: t.text, field: p.expect(nameToken, "").text}
		}
		return target{name: t.text}
	}
	first := one()
	if !p.is(operator, ",") {
		return first
	}
	list := []target{first}
	for p.op(",") {
		if p.is(nameToken, "in") || p.is(operator, "=", ")") || p.is(blockEnd) {
			break
		}
		list = append(list, one())
	}
	return target{list: list}
}

func (p *parser) signature() (params []string, defaults []expression) {
	p.expect(operator, "(")
	for !p.op(")") {
		if len(params) > 0 {
			p.expect(operator, ",")
		}
		params = append(params, p.expect(nameToken, "").text)
		if p.op("=") {
			defaults = append(defaults, p.expression(true))
		} else if len(defaults) > 0 {
			failAt(p.current().line, "found a parameter without a default after one with a default")
		}
	}
	return params, defaults
}

// tuple reads an expression, or several with commas between them.
func (p *parser) tuple(conditional bool, ends ...string) expression {
	line := p.current().line
	ended := func() bool {
		return p.is(variableEnd) || p.is(blockEnd) || p.is(operator, ")") || len(ends) > 0 && p.is(nameToken, ends...)
	}
	var list []expression
	for {
		if ended() {
			break
		}
		list = append(list, p.expression(conditional))
		if !p.is(operator, ",") {
			if len(list) == 1 {
				return list[0]
			}
			break
		}
		p.next()
	}
	if len(list) == 0 {
		failAt(line, "found %v, expected an expression", p.current())
	}
	return &listExpr{tuple, list}
}

func (p *parser) expression(conditional bool) expression {
	defer p.deeper()()
	x := p.or()
	for conditional && p.word("if") {
		n := &condExpr{then: x, test: p.or()}
		if p.word("else") {
			n.otherwise = p.expression(true)
		}
		x = n
	}
	return x
}

func (p *parser) or() expression {
	x := p.and()
	for p.word("or") {
		x = &logicExpr{true, x, p.and()}
	}
	return x
}

func (p *parser) and() expression {
	x := p.not()
	for p.word("and") {
		x = &logicExpr{false, x, p.not()}
	}
	return x
}

func (p *parser) not() expression {
	if p.word("not") {
		defer p.deeper()()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expression {
	first := p.sum()
	n := &compareExpr{first: first}
	for {
		switch {
		case p.is(operator, "==", "!=", "<", "<=", ">", ">="):
			n.ops = append(n.ops, p.next().text)
		case p.word("in"):
			n.ops = append(n.ops, "in")
		case p.is(nameToken, "not") && p.tokens[p.at+1].kind == nameToken && p.tokens[p.at+1].text == "in":
			p.next()
			p.next()
			n.ops = append(n.ops, "not in")
		default:
			if len(n.ops) == 0 {
				return first
			}
			return n
		}
		n.rest = append(n.rest, p.sum())
	}
}

// chain reads operators of one level, from the left.
func (p *parser) chain(of func() expression, ops ...string) expression {
	x := of()
	for p.is(operator, ops...) {
		t := p.next()
		x = &binaryExpr{t.line, t.text, x, of()}
	}
	return x
}

func (p *parser) sum() expression { return p.chain(p.concat, "+", "-") }

func (p *parser) concat() expression {
	x := p.product()
	if !p.is(operator, "~") {
		return x
	}
	n := &concatExpr{[]expression{x}}
	for p.op("~") {
		n.list = append(n.list, p.product())
	}
	return n
}

func (p *parser) product() expression { return p.chain(p.power, "*", "/", "//", "%") }

func (p *parser) power() expression {
	return p.chain(func() expression { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expression {
	defer p.deeper()()
	var x expression
	if p.is(operator, "-", "+") {
		t := p.next()
		x = &signExpr{t.line, t.text == "-", p.unary(false)}
	} else {
		x = p.primary()
	}
	x = p.postfix(x)
	if filters {
		for {
			switch {
			case p.is(operator, "|"):
				x = p.filters(x, false)
			case p.is(nameToken, "is"):
				x = p.test(x)
			case p.is(operator, "("):
				x = p.call(x)
			default:
				return x
			}
		}
	}
	return x
}

func (p *parser) primary() expression {
	t := p.next()
	switch {
	case t.kind == nameToken:
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		p.names = append(p.names, t.text)
		return &nameExpr{t.text}
	case t.kind == stringToken:
		text := t.text
		for p.is(stringToken) {
			text += p.next().text
		}
		return &constExpr{text}
	case t.kind == numberToken:
		return &constExpr{t.value}
	case t.kind == operator && t.text == "(":
		if p.op(")") {
			return &listExpr{tuple, nil}
		}
		x := p.tuple(true)
		p.expect(operator, ")")
		return x
	case t.kind == operator && t.text == "[":
		n := &listExpr{list, nil}
		for !p.op("]") {
			if len(n.items) > 0 {
				if p.expect(operator, ","); p.op("]") {
					break
				}
			}
			n.items = append(n.items, p.expression(true))
		}
		return n
	case t.kind == operator && t.text == "{":
		n := &dictExpr{}
		for !p.op("}") {
			if len(n.keys) > 0 {
				if p.expect(operator, ","); p.op("}") {
					break
				}
			}
			n.keys = append(n.keys, p.expression(true))
			p.expect(operator, ":")
			n.values = append(n.values, p.expression(true))
		}
		return n
	}
	failAt(t.line, "found %v, expected an expression", t)
	return nil
}

func (p *parser) postfix(x expression) expression {
	for {
		switch {
		case p.is(operator, "."):
			line := p.next().line
			if t := p.next(); t.kind == nameToken {
				x = &attributeExpr{line, x, t.text}
			} else if t.kind == numberToken {
				x = &itemExpr{line, x, &constExpr{t.value}}
			} else {
				failAt(t.line, "found %v, expected a name or a number", t)
			}
		case p.is(operator, "["):
			line := p.next().line
			x = p.subscript(line, x)
			p.expect(operator, "]")
		case p.is(operator, "("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) subscript(line int, of expression) expression {
	var at [3]expression
	slice := false
	for i := range at {
		if !p.is(operator, ":", "]") {
			at[i] = p.expression(true)
		}
		if i == 2 || !p.op(":") {
			break
		}
		slice = true
	}
	if slice {
		return &sliceExpr{line, of, at}
	}
	if at[0] == nil {
		failAt(line, "found [], expected an index")
	}
	return &itemExpr{line, of, at[0]}
}

func (p *parser) call(x expression) expression {
	return &callExpr{line: p.current().line, of: x, arguments: p.arguments()}
}

func (p *parser) arguments() (a arguments) {
	p.expect(operator, "(")
	for first := true; !p.op(")"); first = false {
		if !first {
			if p.expect(operator, ","); p.op(")") {
				break
			}
		}
		line := p.current().line
		wrong := false
		switch {
		case p.op("*"):
			wrong = a.dynamic != nil || a.fields != nil
			a.dynamic = p.expression(true)
		case p.op("**"):
			wrong = a.fields != nil
			a.fields = p.expression(true)
		case p.is(nameToken) && p.tokens[p.at+1].kind == operator && p.tokens[p.at+1].text == "=":
			wrong = a.fields != nil
			a.names = append(a.names, p.next().text)
			p.next()
			a.values = append(a.values, p.expression(true))
		default:
			wrong = a.dynamic != nil || a.fields != nil || len(a.names) > 0
			a.list = append(a.list, p.expression(true))
		}
		if wrong {
			failAt(line, "found arguments of a call in a wrong order")
		}
	}
	return a
}

// filters reads filters. If inline is true the first one has no bar.
func (p *parser) filters(x expression, inline bool) expression {
	for inline || p.is(operator, "|") {
		if !inline {
			p.next()
		}
		inline = false
		n := &filterExpr{line: p.current().line, of: x, name: p.dotted()}
		if p.is(operator, "(") {
			n.arguments = p.arguments()
		}
		x = n
	}
	return x
}

func (p *parser) dotted() string {
	name := p.expect(nameToken, "").text
	for p.op(".") {
		name += "." + p.expect(nameToken, "").text
	}
	return name
}

func (p *parser) test(x expression) expression {
	line := p.next().line
	not := p.word("not")
	n := &testExpr{line: line, of: x, name: p.dotted()}
	switch {
	case p.is(operator, "("):
		n.arguments = p.arguments()
	case p.is(nameToken, "else", "or", "and"):
	case p.is(nameToken, "is"):
		failAt(line, "found is after is")
	case p.is(nameToken), p.is(stringToken), p.is(numberToken), p.is(operator, "[", "{"):
		n.list = []expression{p.postfix(p.primary())}
	}
	if not {
		return &notExpr{n}
	}
	return n
}
