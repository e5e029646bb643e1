package gbnf

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// writer writes a text that a grammar allows, by random choices.
type writer struct {
	t     *rapid.T
	g     *reader
	b     strings.Builder
	depth int
}

// write returns a text of a grammar.
func write(t *rapid.T, grammar string) string {
	g, err := read(grammar)
	if err == nil {
		err = g.whole()
	}
	if err != nil {
		t.Fatalf("found a grammar that is none: %v\n%s", err, grammar)
	}
	w := &writer{t: t, g: g}
	w.rule(g.ids["root"])
	return w.b.String()
}

func (w *writer) rule(id int) {
	w.depth++
	alts := w.g.rules[id].alts
	choice := 0
	if len(alts) > 1 {
		choice = rapid.IntRange(0, len(alts)-1).Draw(w.t, "alternate")
	}
	if w.depth > 40 { // to an end: the alternate with the fewest rules
		for i, items := range alts {
			if rules(items) < rules(alts[choice]) {
				choice = i
			}
		}
	}
	for _, x := range alts[choice] {
		n := x.least
		if most := x.most; most != n && w.depth <= 40 {
			if most < 0 {
				most = n + 3
			}
			n = rapid.IntRange(n, min(most, n+20)).Draw(w.t, "times")
		}
		for range n {
			switch {
			case x.rule >= 0:
				w.rule(x.rule)
			case x.ranges != nil:
				w.b.WriteRune(w.class(x))
			default:
				w.b.WriteString(x.text)
			}
		}
	}
	w.depth--
}

func rules(items []item) (n int) {
	for _, x := range items {
		if x.rule >= 0 {
			n += x.least
		}
	}
	return n
}

func (w *writer) class(x item) rune {
	in := func(c rune) bool {
		for i := 0; i < len(x.ranges); i += 2 {
			if c >= x.ranges[i] && c <= x.ranges[i+1] {
				return true
			}
		}
		return false
	}
	if x.negated {
		return rapid.Rune().Filter(func(c rune) bool { return !in(c) && c > 0 }).Draw(w.t, "character")
	}
	i := 2 * rapid.IntRange(0, len(x.ranges)/2-1).Draw(w.t, "range")
	return rapid.Int32Range(x.ranges[i], x.ranges[i+1]).Draw(w.t, "character")
}

// grammar returns the grammar of a schema.
func grammar(schema string) (string, error) {
	g := New()
	name, err := g.Schema([]byte(schema))
	if err != nil {
		return "", err
	}
	g.Rule("root", name)
	return g.String(), nil
}

// valid returns a function that judges texts by a schema.
func valid(t interface{ Fatal(...any) }, schema string) func(text string) error {
	x, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("schema.json", x); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			return fmt.Errorf("found no JSON: %q", text)
		}
		x, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		return compiled.Validate(x)
	}
}

var schemas = []string{
	`{}`, `true`, `{"type":"object"}`, `{"type":"object","additionalProperties":false}`, `{"type":"object","properties":{}}`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"boolean"}},"required":["a","b","c"],"additionalProperties":false}`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"null"},"d":{"type":"number"}},"required":["b"]}`,
	`{"type":"object","properties":{"a":{"const":1},"b":{"const":2}}}`,
	`{"type":"object","additionalProperties":{"type":"integer"}}`,
	`{"properties":{"\"q\\/~\n":{"enum":["a\"b","\\","é","\u2028<&>",1,-2.50,null,true,[1, 2],{"x": "y z"}]}},"required":["\"q\\/~\n"]}`,
	`{"type":["string","null"],"maxLength":4}`, `{"type":["integer","string"],"enum":[1,2.0,"a",null,3.5]}`,
	`{"type":"string","minLength":2}`, `{"type":"string","minLength":3,"maxLength":3}`, `{"type":"string","maxLength":0}`,
	`{"type":"array","items":{"type":"integer"}}`, `{"type":"array","items":{"enum":["a","b"]},"minItems":2,"maxItems":4}`,
	`{"type":"array","minItems":1}`, `{"type":"array","maxItems":0}`, `{"type":"array","items":{"type":"boolean"},"minItems":3}`, `{"type":"array","items":{"type":"null"},"maxItems":1}`,
	`{"anyOf":[{"type":"string"},{"type":"object","properties":{"a":{"$ref":"#/anyOf/0"}},"required":["a"]}]}`,
	`{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"],"additionalProperties":false}}}`,
	`{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"},"maxItems":2},"a/b":{"type":"integer"}},"required":["children"]}`,
	`{"type":"object","properties":{"x":{"allOf":[{"$ref":"#/definitions/x"}],"description":"d"}},"definitions":{"x":{"type":"integer","minimum":3}},"required":["x"]}`,
	`{"type":"string","pattern":"^[a-z]{2,5}-\\d+$"}`, `{"type":"string","pattern":"a|^b\\n?$"}`, `{"type":"string","pattern":"\""}`, `{"type":"string","pattern":"^(?i)ab(c|de?)*[^x]$"}`, `{"pattern":"^\\S+@\\w+$"}`, `{"type":"string","pattern":""}`, `{"type":"string","pattern":"^.{3}$"}`,
	`{"type":"string","format":"date"}`, `{"type":"string","format":"time"}`, `{"type":"string","format":"date-time"}`, `{"type":"string","format":"duration"}`, `{"type":"string","format":"email"}`,
	`{"type":"string","format":"hostname"}`, `{"type":"string","format":"ipv4"}`, `{"type":"string","format":"ipv6"}`, `{"type":"string","format":"uuid"}`,
	`{"type":"integer","minimum":0}`, `{"type":"integer","minimum":-12,"maximum":345}`, `{"type":"integer","exclusiveMinimum":9,"exclusiveMaximum":11}`, `{"type":"integer","maximum":-7}`, `{"type":"integer","minimum":0.5,"maximum":2.5}`, `{"type":"integer","minimum":1e2}`,
	`{"type":"number","minimum":0,"maximum":1}`, `{"type":"number","minimum":-3,"exclusiveMaximum":0}`, `{"type":"number","exclusiveMinimum":0}`, `{"type":"number","exclusiveMinimum":-1,"exclusiveMaximum":1}`, `{"type":"number","maximum":1e30}`, `{"type":"number"}`, `{"minimum":5,"maximum":5}`,
}

// All texts of the grammar of a schema are JSON, and valid by the schema: a library is the judge.
func TestTextsOfASchemaAreValid(t *testing.T) {
	for _, schema := range schemas {
		text, err := grammar(schema)
		if err != nil {
			t.Errorf("%s: %v", schema, err)
			continue
		}
		if prefixes, err := Check(text); err != nil || !prefixes {
			t.Errorf("%s: found %v, %v, expected a grammar whose texts can be refused by their beginnings:\n%s", schema, prefixes, err, text)
			continue
		}
		judge := valid(t, schema)
		t.Run(schema, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				if text := write(t, text); judge(text) != nil {
					t.Fatalf("%s\nfound %q: %v", schema, text, judge(text))
				}
			})
		})
	}
}

// random is a schema of random parts.
func random(depth int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		kinds := []string{"string", "integer", "number", "boolean", "null", "enum", "string"}
		if depth > 0 {
			kinds = append(kinds, "object", "object", "array", "anyOf", "ref")
		}
		sub := func() any { return random(depth-1).Draw(t, "schema") }
		x := map[string]any{}
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		switch kind {
		case "enum":
			x["enum"] = rapid.SliceOfNDistinct(rapid.StringN(0, 4, -1), 1, 4, rapid.ID).Draw(t, "values")
			return x
		case "anyOf":
			x["anyOf"] = []any{sub(), sub()}
			return x
		case "ref":
			return map[string]any{"type": "array", "items": map[string]any{"$ref": "#"}, "maxItems": 1}
		}
		x["type"] = kind
		low := rapid.IntRange(-2000, 2000).Draw(t, "low")
		high := low + rapid.IntRange(1, 3000).Draw(t, "width")
		some := func(name string, value any) {
			if rapid.Bool().Draw(t, "has "+name) {
				x[name] = value
			}
		}
		switch kind {
		case "object":
			properties, required := map[string]any{}, []string{}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b c", "ü", "\"", "x/y~z"}), 1, 4, rapid.ID).Draw(t, "names") {
				if properties[name] = sub(); rapid.Bool().Draw(t, "required") {
					required = append(required, name)
				}
			}
			x["properties"], x["required"], x["additionalProperties"] = properties, required, false
		case "array":
			x["items"] = sub()
			some("minItems", (low+2000)%3)
			some("maxItems", 3)
		case "string":
			if some("maxLength", 5); x["maxLength"] != nil {
				some("minLength", (low+2000)%5)
			}
		case "integer", "number":
			some("minimum", low)
			some("exclusiveMaximum", high)
		}
		return x
	})
}

func TestTextsOfRandomSchemasAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := random(3).Draw(t, "schema")
		b, _ := json.Marshal(x)
		text, err := grammar(string(b))
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		judge := valid(t, string(b))
		for range 5 {
			if text := write(t, text); judge(text) != nil {
				t.Fatalf("%s\nfound %q: %v", b, text, judge(text))
			}
		}
	})
}

// The integers between two bounds are the ones that the grammar allows, each.
func TestIntegersBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Int64Range(0, 1200).Draw(t, "low")
		high := rapid.Int64Range(low, 1300).Draw(t, "high")
		re := regexp.MustCompile("^(?:" + strings.NewReplacer(`"`, "", " ", "").Replace(between(low, high)) + ")$")
		for n := range int64(1500) {
			if re.MatchString(strconv.FormatInt(n, 10)) != (n >= low && n <= high) {
				t.Fatalf("%d to %d: found %d judged wrongly by %s", low, high, n, re)
			}
		}
		if re.MatchString("0"+strconv.FormatInt(low, 10)) || re.MatchString("") {
			t.Fatalf("%d to %d: found a leading zero or nothing allowed by %s", low, high, re)
		}
	})
	if x := between(0, mostInteger); !regexp.MustCompile("^(?:" + strings.NewReplacer(`"`, "", " ", "").Replace(x) + ")$").MatchString(strconv.Itoa(mostInteger)) {
		t.Errorf("found %s, expected all integers of 16 digits", x)
	}
}

// A schema that is not known is an error with the place of the reason.
func TestUnknownSchemas(t *testing.T) {
	many := `{"type":"array","items":{"anyOf":[` + strings.Repeat(`{"type":"array","maxItems":1999},`, 40) + `{}]}}`
	deep := strings.Repeat(`{"items":`, 200) + "{}" + strings.Repeat("}", 200)
	for _, c := range []struct{ schema, path, what string }{
		{`{"type":"object","properties":{"a":{"type":"string","frob":1}}}`, "#/properties/a/frob", "found the keyword \"frob\""},
		{`{"properties":{"a/b":{"oneOf":[{}]}}}`, "#/properties/a~1b/oneOf", "oneOf"},
		{`{"type":"array","items":{"not":{}}}`, "#/items/not", "not"},
		{`{"type":"array","uniqueItems":true}`, "#/uniqueItems", "uniqueItems"},
		{`{"type":"object","patternProperties":{}}`, "#/patternProperties", "patternProperties"},
		{`{"type":"integer","multipleOf":2}`, "#/multipleOf", "multipleOf"},
		{`{"anyOf":[{"type":"string"},{"type":"strin"}]}`, "#/anyOf/1/type", `"strin"`},
		{`{"anyOf":[]}`, "#/anyOf", "one element at least"},
		{`{"anyOf":[{}],"type":"string"}`, "#/type", "next to anyOf"},
		{`{"allOf":[{},{}]}`, "#/allOf/1", "second schema"},
		{`{"$ref":"#/$defs/x"}`, "#/$ref", `no "$defs" in #`},
		{`{"$ref":"http://example.com/x"}`, "#/$ref", "a place in this schema"},
		{`{"$ref":"#"}`, "#/$ref", "itself alone"},
		{`{"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, "#/$defs/b/$ref", "itself alone"},
		{`{"type":"string","pattern":"(?=a)"}`, "#/pattern", "regular expression"},
		{`{"type":"string","pattern":"a^b"}`, "#/pattern", "expected ^ at the beginning"},
		{`{"type":"string","pattern":"(a*)+"}`, "#/pattern", "repetition"},
		{`{"type":"string","pattern":"a","minLength":1}`, "#/pattern", "alone"},
		{`{"type":"string","format":"color"}`, "#/format", "date-time"},
		{`{"type":"string","minLength":3,"maxLength":2}`, "#/minLength", "at most maxLength"},
		{`{"type":"string","maxLength":2000}`, "#/maxLength", "0 to 1999"},
		{`{"type":"string","maxLength":1.5}`, "#/maxLength", "found 1.5"},
		{`{"type":"number","minimum":0.5}`, "#/minimum", "expected an integer"},
		{`{"type":"number","minimum":"0"}`, "#/minimum", "expected a number"},
		{`{"type":"integer","minimum":1e17}`, "#/minimum", "16 digits"},
		{`{"type":"integer","minimum":3,"maximum":2}`, "#", "no number"},
		{`{"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2}`, "#", "no number"},
		{`{"type":"object","properties":{"a":{}},"required":["b"]}`, "#/required", `"b"`},
		{`{"type":"object","properties":{"a":{}},"required":"a"}`, "#/required", "a list of names"},
		{`{"type":"object","properties":{"a":false}}`, "#/properties/a", "found false"},
		{`{"type":"object","properties":[1]}`, "#/properties", "found [1]"},
		{`{"type":"object","additionalProperties":1}`, "#/additionalProperties", "found 1"},
		{`{"type":"string","enum":[1]}`, "#/enum", "no value of the type"},
		{`{"type":"integer","const":"a"}`, "#/const", "expected a value of the type"},
		{`{"type":"no such","const":"a"}`, "#/type", "found"},
		{`{"enum":[]}`, "#/enum", "one element at least"},
		{`7`, "#", "found 7"}, {`{"a"`, "#", ""}, {deep, "#", "101 deep"}, {many, "#/items/anyOf/25", "more than 50000 rules"},
	} {
		_, err := grammar(c.schema)
		e, ok := err.(*SchemaError)
		if !ok || e.Path != c.path || !strings.Contains(e.What, c.what) {
			t.Errorf("%.100s: found %v, expected an error at %s with %q", c.schema, err, c.path, c.what)
		}
	}
}

// The errors of a grammar name their line, what was found and what was expected. A hostile one takes
// no time.
func TestErrorsOfGrammars(t *testing.T) {
	diamond := "root ::= a0\n"
	for i := range 60 {
		diamond += fmt.Sprintf("a%d ::= a%d | a%d \"x\"\n", i, i+1, i+1)
	}
	for _, c := range []struct{ text, want string }{
		{"", "no rule root"}, {"a ::= \"b\"", "no rule root"}, {"root ::= b", "line 1: found the rule b, which has no definition"},
		{"root ::= \"a\"\nx y", "line 2: found \"y\", expected ::="}, {"root = \"a\"", "expected ::="}, {"root ::= \"a", "found the end in a literal"},
		{"root ::= [a", "found the end"}, {"root ::= []", "a class without characters"}, {`root ::= "\q"`, `the escape \q`}, {`root ::= "\x4g"`, "2 hexadecimal digits"},
		{"root ::= * \"a\"", "an item before it"}, {"root ::= (\"a\"", "expected )"}, {"root ::= \"a\"{3,2}", "at least 3 and at most 2"}, {"root ::= \"a\"{2000}", "above 1999"},
		{"root ::= \"a\"{x}", "a number of repetitions"}, {"root ::= ((\"a\" | \"b\"){100} \"c\"){100}", "makes"}, {"root ::= root \"a\" | \"b\"", "begins with itself"},
		{"root ::= e root \"a\" | \"b\"\ne ::= f\nf ::= \"\" | \"z\"", "begins with itself"}, {"root ::= <x", "a token"}, {"root ::= \"a\"\nroot ::= \"b\"", "twice"},
		{"root ::= " + strings.Repeat("(", 100) + `"a"` + strings.Repeat(")", 100), "nested deeper"}, {"root ::= \"\xff\"", "expected UTF-8"}, {diamond + "a60 ::= \"y\"", "ways"},
		{"root ::= \"a\" ]", "the end of the rule"},
	} {
		if _, err := Check(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.100q: found %v, expected %q", c.text, err, c.want)
		}
	}
	for text, prefixes := range map[string]bool{
		"root ::= \"a\" [^\"é]": false, "root ::= [^\\u00e9]": false, "root ::= <[12]>": false, "root ::= !<x> .": false, "root ::= [^\\x00-\\x1f] [é] \"<é>\" # <x>\n": true,
		"root ::= ( \"a\" |\n \"b\" )* c?\nc ::= [a-zA-Z\\]\\-] d{2,} e{3} f{0,4}\nd ::= .\ne ::= \"\\n\\U0001F600\"\nf-2 ::= \"x\"\nf ::= f-2+ |": true,
	} {
		if found, err := Check(text); err != nil || found != prefixes {
			t.Errorf("%q: found %v, %v, expected %v", text, found, err, prefixes)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("root ::= \"a\" ([^b-c] | <x> .){1,2} r # c\nr ::= \"\\x41\" |")
	f.Fuzz(func(t *testing.T, text string) { _, _ = Check(text) })
}

// FuzzSchema: whatever the schema, there is an error, or a grammar whose texts are valid.
func FuzzSchema(f *testing.F) {
	for _, s := range schemas {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		text, err := grammar(schema)
		if err != nil {
			return
		}
		if _, err := Check(text); err != nil && !strings.Contains(err.Error(), "expected at most these") {
			t.Fatalf("%s: %v\n%s", schema, err, text)
		}
	})
}
