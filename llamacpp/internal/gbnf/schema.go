package gbnf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
)

// The bounds of a schema.
const (
	mostDepth    = 100
	mostSchema   = 20_000 // rules
	mostRepeated = 50_000 // repetitions together, of each of which llama.cpp makes a rule
	mostValues   = 1000   // of enums together, as OpenAI has it: llama.cpp judges each for each token
)

// SchemaError is the error of a schema.
type SchemaError struct {
	Path string // a JSON pointer with #, such as "#/properties/age"
	What string // is wrong
}

func (e *SchemaError) Error() string { return e.Path + ": " + e.What }

// Grammar is a grammar that is being written. A rule that its caller adds has no name of an r and a number.
type Grammar struct {
	rules   []string
	names   map[string]string // of the bodies of rules
	known   map[string]bool
	root    jsonscan.Value // of the schema that is read
	refs    map[string]string
	open    map[string]bool // references that are followed, and nothing was read since
	depth   int
	repeats int
	values  int
	last    int // the number of the last rule without a name
}

// New returns a grammar without rules.
func New() *Grammar {
	return &Grammar{names: map[string]string{}, known: map[string]bool{}}
}

// String returns the text of the grammar.
func (g *Grammar) String() string { return strings.Join(g.rules, "\n") + "\n" }

// Rule adds a rule of a name, such as root.
func (g *Grammar) Rule(name, body string) { g.rules = append(g.rules, name+" ::= "+body) }

// rule returns the name of a rule with a body: there is one for each.
func (g *Grammar) rule(body string) string {
	name, ok := g.names[body]
	if !ok {
		name = g.free()
		g.names[body] = name
		g.Rule(name, body)
	}
	return name
}

// free returns the name of a rule that is written later.
func (g *Grammar) free() string {
	g.last++
	return "r" + strconv.Itoa(g.last)
}

// parts are the rules that most grammars need.
var parts = map[string][2]string{ // the body, and the names of the rules in it
	"ws":      {`(" " | "\n" " "{0,20})?`},
	"hex":     {`[0-9a-fA-F]`},
	"escape":  {`"\\" (["\\/bfnrt] | "u" ([0-9a-cA-Ce-fE-F] hex | [dD] [0-7]) hex hex)`, "hex"}, // no half of a pair
	"char":    {`[^"\\\x00-\x1F\x7F] | escape`, "escape"},
	"string":  {`"\"" char* "\""`, "char"},
	"digits":  {`"0" | [1-9] [0-9]{0,15}`},
	"integer": {`"-"? digits`, "digits"},
	"number":  {`integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?`, "integer"},
	"value":   {`object | array | string | number | "true" | "false" | "null"`, "object array string number"},
	"object":  {`"{" ws (string ":" ws value ("," ws string ":" ws value)* ws)? "}"`, "ws string value"},
	"array":   {`"[" ws (value ("," ws value)* ws)? "]"`, "ws value"},
}

// Part returns the name of one of the rules ws, string, integer, number, value, object and array,
// which it adds.
func (g *Grammar) Part(name string) string {
	if !g.known[name] {
		g.known[name] = true
		p := parts[name]
		for _, other := range strings.Fields(p[1]) {
			g.Part(other)
		}
		g.Rule(name, p[0])
	}
	return name
}

// Literal returns the literal of a text.
func Literal(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02X`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Schema adds the rules of a schema, and returns the name of its first one.
func (g *Grammar) Schema(schema []byte) (rule string, err error) {
	root, err := jsonscan.Parse(schema)
	if err != nil {
		return "", &SchemaError{"#", err.Error()}
	}
	g.root, g.refs, g.open, g.depth = root, map[string]string{}, map[string]bool{}, 0
	defer func() {
		if e, is := recover().(*SchemaError); is {
			rule, err = "", e
		}
	}()
	return g.rule(g.schema("#", root)), nil
}

func fail(path, format string, a ...any) { panic(&SchemaError{path, fmt.Sprintf(format, a...)}) }

// short is JSON as a message shows it.
func short(v jsonscan.Value) string {
	const most = 60
	if len(v) > most {
		return strings.ToValidUTF8(string(v[:most]), "") + "..."
	}
	return string(v)
}

// escaped is a name in a JSON pointer.
func escaped(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// keywords are the fields of a schema.
type keywords struct {
	path string
	of   map[string]jsonscan.Value
}

// annotations are keywords on which no text depends.
var annotations = []string{"title", "description", "default", "examples", "example", "$schema", "$id", "id", "$comment", "deprecated", "readOnly", "writeOnly",
	"$defs", "definitions", "$anchor", "contentMediaType", "contentEncoding"}

// only fails on a keyword that is none of the names and no annotation.
func (k *keywords) only(what string, names ...string) {
	found := ""
	for name := range k.of {
		if !slices.Contains(names, name) && !slices.Contains(annotations, name) && (found == "" || name < found) {
			found = name
		}
	}
	if found != "" {
		if len(names) == 0 {
			names = []string{"type", "enum", "const", "anyOf", "allOf", "$ref"}
		}
		fail(k.path+"/"+escaped(found), "found the keyword %.40q %s, expected one of %s", found, what, strings.Join(names, ", "))
	}
}

func (k *keywords) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return k.of[name] != nil })
}

// count reads a number of elements or characters.
func (k *keywords) count(name string, of int) int {
	v := k.of[name]
	if v == nil {
		return of
	}
	n, err := strconv.Atoi(string(v))
	if x, float := strconv.ParseFloat(string(v), 64); err != nil && float == nil && x == float64(int(x)) {
		n, err = int(x), nil
	}
	if err != nil || n < 0 || n > mostRepeats {
		fail(k.path+"/"+name, "found %s, expected an integer, 0 to %d", short(v), mostRepeats)
	}
	return n
}

func (k *keywords) text(name string) string {
	v := k.of[name]
	if len(v) == 0 || v[0] != '"' {
		fail(k.path+"/"+name, "found %s, expected a string", short(v))
	}
	b, err := v.Bytes()
	if err != nil {
		fail(k.path+"/"+name, "found %s, expected a string", short(v))
	}
	return string(b)
}

// list calls each for the elements of a list with one element at least.
func (k *keywords) list(name string, each func(path string, v jsonscan.Value)) {
	n := 0
	err := k.of[name].Array(func(v jsonscan.Value) error {
		each(fmt.Sprintf("%s/%s/%d", k.path, escaped(name), n), v)
		n++
		return nil
	})
	if err != nil || n == 0 {
		fail(k.path+"/"+escaped(name), "found %s, expected a list with one element at least", short(k.of[name]))
	}
}

// schema returns the body of a rule of a schema.
func (g *Grammar) schema(path string, v jsonscan.Value) string {
	if g.depth++; g.depth > mostDepth {
		fail(path, "found schemas nested deeper than %d, expected at most this", mostDepth)
	}
	defer func() { g.depth-- }()
	if len(g.rules) > mostSchema {
		fail(path, "found a schema that takes more than %d rules, expected at most these", mostSchema)
	}
	if string(v) == "true" {
		return g.Part("value")
	}
	k := &keywords{path, map[string]jsonscan.Value{}}
	if len(v) == 0 || v[0] != '{' {
		fail(path, "found %s, expected a schema, which is an object", short(v))
	}
	if err := v.Object(func(name []byte, v jsonscan.Value) error { k.of[string(name)] = v; return nil }); err != nil {
		fail(path, "%v", err)
	}
	switch {
	case k.has("$ref"):
		k.only("next to $ref", "$ref")
		return g.ref(k.path+"/$ref", k.text("$ref"))
	case k.has("enum"):
		k.only("next to enum", "enum", "type")
		return g.enum(k, "enum")
	case k.has("const"):
		k.only("next to const", "const", "type")
		if !g.is(k, k.of["const"]) {
			fail(k.path+"/const", "found %s, expected a value of the type %s", short(k.of["const"]), short(k.of["type"]))
		}
		return g.literal(k.path+"/const", k.of["const"])
	case k.has("anyOf"):
		k.only("next to anyOf", "anyOf")
		var any []string
		k.list("anyOf", func(path string, v jsonscan.Value) { any = append(any, g.rule(g.schema(path, v))) })
		return alternatives(any)
	case k.has("allOf"):
		k.only("next to allOf", "allOf")
		var body string
		n := 0
		k.list("allOf", func(path string, v jsonscan.Value) {
			if n++; n > 1 {
				fail(path, "found a second schema, expected one alone in allOf")
			}
			body = g.schema(path, v)
		})
		return body
	}
	// Each type has keywords of its own.
	types := g.types(k)
	if types == nil {
		k.only("in a schema without a type")
		return g.Part("value")
	}
	allowed := []string{"type"}
	for _, t := range types {
		allowed = append(allowed, keywordsOf[t]...)
	}
	k.only("in a schema of the type "+strings.Join(types, " or "), allowed...)
	var any []string
	for _, t := range types {
		any = append(any, g.typed(k, t))
	}
	return alternatives(any)
}

func alternatives(list []string) string {
	var distinct []string
	for _, x := range list {
		if !slices.Contains(distinct, x) {
			distinct = append(distinct, x)
		}
	}
	return strings.Join(distinct, " | ")
}

var keywordsOf = map[string][]string{
	"object":  {"properties", "required", "additionalProperties"},
	"array":   {"items", "minItems", "maxItems"},
	"string":  {"minLength", "maxLength", "pattern", "format"},
	"number":  {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
	"integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
	"boolean": nil,
	"null":    nil,
}

// types returns the types of a schema: those that it names, or the one whose keywords it has.
func (g *Grammar) types(k *keywords) (types []string) {
	add := func(path string, v jsonscan.Value) {
		var name string
		if json.Unmarshal(v, &name) != nil {
			fail(path, "found %s, expected the name of a type", short(v))
		}
		if _, known := keywordsOf[name]; !known {
			fail(path, "found the type %.40q, expected object, array, string, number, integer, boolean or null", name)
		}
		types = append(types, name)
	}
	switch v := k.of["type"]; {
	case v != nil && v[0] == '[':
		k.list("type", add)
	case v != nil:
		add(k.path+"/type", v)
	default:
		for _, t := range []string{"object", "array", "string", "number"} {
			if k.has(keywordsOf[t]...) {
				return []string{t}
			}
		}
	}
	return types
}

func (g *Grammar) typed(k *keywords, kind string) string {
	switch kind {
	case "object":
		return g.object(k)
	case "array":
		return g.array(k)
	case "string":
		return g.string(k)
	case "number", "integer":
		return g.number(k, kind == "integer")
	case "boolean":
		return `"true" | "false"`
	}
	return `"null"`
}

// ref returns the rule of the schema that a reference names, a JSON pointer into the whole one.
func (g *Grammar) ref(path, to string) string {
	if name, ok := g.refs[to]; ok {
		if g.open[to] {
			fail(path, "found %.60q, a reference that leads to itself alone, expected a schema", to)
		}
		return name
	}
	if to != "#" && !strings.HasPrefix(to, "#/") {
		fail(path, "found %.60q, expected a place in this schema, such as \"#/$defs/name\"", to)
	}
	v, at := g.root, "#"
	for _, name := range strings.Split(to, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		var next jsonscan.Value
		switch {
		case len(v) > 0 && v[0] == '{':
			_ = v.Entries(func(key []byte, of jsonscan.Value) error {
				if string(key) == name {
					next = of
				}
				return nil
			})
		case len(v) > 0 && v[0] == '[':
			n := 0
			_ = v.Array(func(of jsonscan.Value) error {
				if strconv.Itoa(n) == name {
					next = of
				}
				n++
				return nil
			})
		}
		if next == nil {
			fail(path, "found %.60q, expected a place in this schema: there is no %.40q in %s", to, name, at)
		}
		v, at = next, at+"/"+escaped(name)
	}
	name := g.free()
	g.refs[to], g.open[to] = name, true
	depth := g.depth
	body := g.schema(at, v)
	g.depth = depth
	g.open[to] = false
	g.Rule(name, body)
	return name
}

// nested is what stands between the brackets of an object or an array, where a schema may refer to
// itself.
func (g *Grammar) nested(path string, v jsonscan.Value) string {
	open := g.open
	g.open = map[string]bool{}
	defer func() { g.open = open }()
	return g.rule(g.schema(path, v))
}

func (g *Grammar) enum(k *keywords, name string) string {
	var any []string
	k.list(name, func(path string, v jsonscan.Value) {
		if g.values++; g.values > mostValues {
			fail(path, "found more than %d values in the enums of a schema, expected at most these", mostValues)
		}
		if g.is(k, v) {
			any = append(any, g.literal(path, v))
		}
	})
	if len(any) == 0 {
		fail(k.path+"/"+name, "found no value of the type %s, expected one at least", short(k.of["type"]))
	}
	return alternatives(any)
}

// is reports whether a value has a type of the schema.
func (g *Grammar) is(k *keywords, v jsonscan.Value) bool {
	types := g.types(&keywords{k.path, map[string]jsonscan.Value{"type": k.of["type"]}})
	if k.of["type"] == nil {
		return true
	}
	kind := map[byte]string{'{': "object", '[': "array", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}[v[0]]
	if kind == "" {
		x, err := strconv.ParseFloat(string(v), 64)
		return slices.Contains(types, "number") || err == nil && x == float64(int64(x)) && slices.Contains(types, "integer")
	}
	return slices.Contains(types, kind)
}

// literal is a value of JSON, without spaces.
func (g *Grammar) literal(path string, v jsonscan.Value) string {
	if v[0] == '"' {
		text, err := v.Bytes()
		if err != nil {
			fail(path, "%v", err)
		}
		return Literal(Quote(string(text)))
	}
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil {
		fail(path, "%v", err)
	}
	return Literal(b.String())
}

// Quote returns a text as JSON, with the fewest escapes.
func Quote(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // of a text
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(b.String(), "\n"))
}

// object: the properties in their order. Those that are not required may be left out.
func (g *Grammar) object(k *keywords) string {
	type property struct {
		name string
		rule string
		must bool
	}
	required := map[string]bool{}
	if k.has("required") {
		n := 0
		if err := k.of["required"].Array(func(v jsonscan.Value) error {
			var name string
			if json.Unmarshal(v, &name) != nil {
				fail(fmt.Sprintf("%s/required/%d", k.path, n), "found %s, expected the name of a property", short(v))
			}
			n++
			required[name] = true
			return nil
		}); err != nil {
			fail(k.path+"/required", "found %s, expected a list of names", short(k.of["required"]))
		}
	}
	ws := g.Part("ws")
	additional := k.of["additionalProperties"]
	var list []property
	if k.has("properties") {
		if k.of["properties"][0] != '{' {
			fail(k.path+"/properties", "found %s, expected an object of schemas", short(k.of["properties"]))
		}
		if err := k.of["properties"].Object(func(name []byte, v jsonscan.Value) error {
			path := k.path + "/properties/" + escaped(string(name))
			list = append(list, property{string(name), g.nested(path, v), required[string(name)]})
			delete(required, string(name))
			return nil
		}); err != nil {
			var e *SchemaError
			if errors.As(err, &e) {
				panic(e)
			}
			fail(k.path+"/properties", "%v", err)
		}
	}
	left := ""
	for name := range required {
		if left == "" || name < left {
			left = name
		}
	}
	if left != "" {
		fail(k.path+"/required", "found %.40q, expected names of properties", left)
	}
	if additional != nil && additional[0] != '{' && string(additional) != "false" && string(additional) != "true" {
		fail(k.path+"/additionalProperties", "found %s, expected true, false or a schema", short(additional))
	}
	if len(list) == 0 {
		switch {
		case string(additional) == "false" || k.has("properties"):
			return `"{" ` + ws + ` "}"`
		case additional == nil || string(additional) == "true":
			return g.Part("object")
		}
		pair := g.rule(g.Part("string") + ` ":" ` + ws + ` ` + g.nested(k.path+"/additionalProperties", additional))
		return fmt.Sprintf(`"{" %s (%s ("," %[1]s %[2]s)* %[1]s)? "}"`, ws, pair)
	}
	// From the last property to the first: the rest of the object, after another property and as its
	// beginning.
	more, first := ws+` "}"`, `"}"`
	for _, p := range slices.Backward(list) {
		pair := Literal(Quote(p.name)+":") + " " + ws + " " + p.rule
		after := g.rule(more)
		newMore, newFirst := `"," `+ws+" "+pair+" "+after, pair+" "+after
		if !p.must {
			newMore, newFirst = newMore+" | "+after, newFirst+" | "+g.rule(first)
		}
		more, first = newMore, newFirst
	}
	return `"{" ` + ws + " " + g.rule(first)
}

func (g *Grammar) array(k *keywords) string {
	item := ""
	if k.has("items") {
		item = g.nested(k.path+"/items", k.of["items"])
	} else {
		item = g.Part("value")
	}
	ws := g.Part("ws")
	least, most := k.count("minItems", 0), k.count("maxItems", -1)
	if most >= 0 && least > most {
		fail(k.path+"/minItems", "found %d, expected at most maxItems, %d", least, most)
	}
	if most == 0 {
		return `"[" ` + ws + ` "]"`
	}
	body := fmt.Sprintf(`%s %s %s`, item, g.times(k.path, fmt.Sprintf(`("," %s %s)`, ws, item), max(least-1, 0), most-1), ws)
	if least == 0 {
		body = "(" + body + ")?"
	}
	return `"[" ` + ws + " " + body + ` "]"`
}

// times is a repetition, without bound if most is negative.
func (g *Grammar) times(path, item string, least, most int) string {
	if g.repeats += max(least, most); g.repeats > mostRepeated {
		fail(path, "found repetitions that make more than %d rules together, expected at most these", mostRepeated)
	}
	switch {
	case most < 0 && least == 0:
		return item + "*"
	case most < 0:
		return fmt.Sprintf("%s{%d,}", item, least)
	case least == most:
		return fmt.Sprintf("%s{%d}", item, least)
	}
	return fmt.Sprintf("%s{%d,%d}", item, least, most)
}

func (g *Grammar) string(k *keywords) string {
	least, most := k.count("minLength", 0), k.count("maxLength", -1)
	switch {
	case k.has("pattern") && k.has("format", "minLength", "maxLength"):
		fail(k.path+"/pattern", "found a pattern with other bounds of a string, expected it alone")
	case k.has("format") && k.has("minLength", "maxLength"):
		fail(k.path+"/format", "found a format with other bounds of a string, expected it alone")
	case k.has("pattern"):
		return `"\"" ` + g.pattern(k.path+"/pattern", k.text("pattern")) + ` "\""`
	case k.has("format"):
		pattern, ok := formats[k.text("format")]
		if !ok {
			fail(k.path+"/format", "found %.40q, expected one of %s", k.text("format"), strings.Join(formatNames(), ", "))
		}
		return `"\"" ` + g.pattern(k.path+"/format", pattern) + ` "\""`
	case least == 0 && most < 0:
		return g.Part("string")
	case most >= 0 && least > most:
		fail(k.path+"/minLength", "found %d, expected at most maxLength, %d", least, most)
	case most == 0:
		return `"\"\""`
	}
	// A rule for each pair of bounds, so that strings of one length share the rules that llama.cpp
	// makes for it.
	body := `"\"" ` + g.Part("char") + fmt.Sprintf("{%d,%d}", least, most) + ` "\""`
	if most < 0 {
		body = `"\"" ` + g.Part("char") + fmt.Sprintf("{%d,}", least) + ` "\""`
	}
	if g.names[body] == "" {
		g.times(k.path, "", least, most)
	}
	return g.rule(body)
}
