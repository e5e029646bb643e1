package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var now = time.Date(2024, 7, 6, 14, 5, 9, 0, time.UTC)

// result is what a template makes of a chat: a text, or the error.
type result struct {
	Text  *string `json:"text"`
	Error string  `json:"error"`
}

func readJSON(t testing.TB, path string, to any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// chats are the variables of the renderings, by the names of the chats.
func chats(t testing.TB) map[string]map[string]any {
	t.Helper()
	var raw map[string]json.RawMessage
	readJSON(t, "testdata/chats.json", &raw)
	all := map[string]map[string]any{}
	for name, text := range raw {
		x, err := FromJSON(text)
		if err != nil {
			t.Fatal(name, err)
		}
		d := x.(*Dict)
		all[name] = map[string]any{}
		for _, key := range d.keys {
			all[name][key.(string)], _ = d.get(key)
		}
	}
	return all
}

// templates are the files of a folder, by their names.
func templates(t testing.TB, folder string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		if e.Type().IsRegular() {
			raw, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[strings.TrimSuffix(e.Name(), ".jinja")] = string(raw)
		}
	}
	return all
}

func render_(source string, variables map[string]any) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(variables, Options{Now: now})
}

// python has jinja2 render templates, or skips the test if there is none.
func python(t testing.TB, sources map[string]string) (want map[string]map[string]result) {
	t.Helper()
	if err := exec.Command("python3", "-c", "import jinja2").Run(); err != nil {
		t.Skipf("found no python3 with jinja2 (pip install jinja2): %v", err)
	}
	var variables json.RawMessage
	readJSON(t, "testdata/chats.json", &variables)
	asked, err := json.Marshal(map[string]any{"templates": sources, "chats": variables})
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("python3", "testdata/render.py")
	c.Stdin, c.Stderr = bytes.NewReader(asked), os.Stderr
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// same compares renderings with jinja2's: equal texts, an error for an error, and the message of an
// error that the template raises.
func same(t *testing.T, sources map[string]string, want map[string]map[string]result) {
	t.Helper()
	all := chats(t)
	texts, errs := 0, 0
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		for _, chat := range slices.Sorted(maps.Keys(all)) {
			w, ok := want[name][chat]
			text, err := render_(sources[name], all[chat])
			_, raised, isRaised := strings.Cut(w.Error, "TemplateError: ")
			switch {
			case !ok:
				t.Errorf("%s, %s: found no rendering of jinja2", name, chat)
			case w.Text != nil && (err != nil || text != *w.Text):
				t.Errorf("%s, %s: found %q, %v\nexpected %q", name, chat, text, err, *w.Text)
			case w.Text == nil && err == nil:
				t.Errorf("%s, %s: found %q, expected the error %s", name, chat, text, w.Error)
			case isRaised:
				if e := (*Error)(nil); !errors.As(err, &e) || !e.Raised || e.Text != raised {
					t.Errorf("%s, %s: found the error %v, expected %q, raised", name, chat, err, raised)
				}
			}
			if err == nil {
				texts++
			} else {
				errs++
			}
		}
	}
	t.Logf("%d templates, %d chats each: %d texts, %d errors", len(sources), len(all), texts, errs)
}

// Each template of the folder has the constructs of a family of models, in the ways of its template.
// families.json has jinja2's renderings.
func TestFamilies(t *testing.T) {
	sources := templates(t, "testdata/families")
	if len(sources) < 30 {
		t.Fatalf("found %d templates, expected 30 or more", len(sources))
	}
	var want map[string]map[string]result
	readJSON(t, "testdata/families.json", &want)
	same(t, sources, want)
}

// The renderings of families.json are jinja2's. After a change of the templates or the chats
// UPDATE=1 writes them.
func TestFamiliesAreThoseOfJinja2(t *testing.T) {
	found := python(t, templates(t, "testdata/families"))
	if os.Getenv("UPDATE") != "" {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(found); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("testdata/families.json", b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var want map[string]map[string]result
	readJSON(t, "testdata/families.json", &want)
	a, _ := json.Marshal(found)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Error("testdata/families.json: found other renderings than jinja2's: UPDATE=1 go test -run TestFamiliesAreThoseOfJinja2")
	}
}

// L2S_CHAT_TEMPLATES names a folder of chat templates, such as llama.cpp's models/templates.
func TestRealTemplates(t *testing.T) {
	folder := os.Getenv("L2S_CHAT_TEMPLATES")
	if folder == "" {
		t.Skip("L2S_CHAT_TEMPLATES names no folder of chat templates")
	}
	sources := templates(t, folder)
	same(t, sources, python(t, sources))
}

// unbuilt are expressions of the table that jinja2 renders and this package refuses: texts with
// addresses or of objects, rare methods, and integers of more than 64 bits.
var unbuilt = map[string]string{
	"{{ {'a':1}.items() }}":  "as text, expected a list",
	"{{ range(3) }}":         "found a range as text",
	"{{ {'items': 3}.items":  "found a function as text",
	"{{ 'ab'.encode() }}":    "no attribute 'encode'",
	"{{ 'a'|items }}":        "found a generator as text",
	"{{ 10000000000 * 100":   "an integer of more than 64 bits",
	"{{ 'İ'.lower() }}":      "lower: found 'İ'",
	"{{ '%(a)s' % {'a':1} }": `found the format "(a)s"`,
	"{{ f.name }}":           `the attribute "name" of a function`,
	"{{ 'ABC'.swapcase() }}": "no attribute 'swapcase'",
	"{{ 'abc'.center(7) }}":  "no attribute 'center'",
	"{{ 12345|round(-2) }}":  "found the precision -2",
	"{% set ns._a = 1 %}":    "an underscore first", // transformers refuses it too
}

// language.json has small templates, and what jinja2 makes of each.
func TestLanguage(t *testing.T) {
	var table []struct {
		Template string
		result
	}
	readJSON(t, "testdata/language.json", &table)
	if len(table) < 200 {
		t.Fatalf("found %d templates, expected 200 or more", len(table))
	}
	for _, c := range table {
		text, err := render_(c.Template, nil)
		why := ""
		for part, reason := range unbuilt {
			if strings.Contains(c.Template, part) {
				why = reason
			}
		}
		switch {
		case why != "":
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%q: found %q, %v, expected the error %q", c.Template, text, err, why)
			}
		case c.Text != nil && (err != nil || text != *c.Text):
			t.Errorf("%q: found %q, %v, expected %q", c.Template, text, err, *c.Text)
		case c.Text == nil && err == nil:
			t.Errorf("%q: found %q, expected the error %s", c.Template, text, c.Error)
		}
	}
}

// A hostile template ends with an error, and takes no more memory than it may.
func TestHostileTemplates(t *testing.T) {
	deep := func(open, close string) string {
		return "{{ " + strings.Repeat(open, 100_000) + "1" + strings.Repeat(close, 100_000) + " }}"
	}
	long := strings.Repeat("x", 1<<20)
	for name, source := range map[string]string{
		"loops in loops":        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
		"output in loops":       "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
		"a macro of itself":     "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"two macros":            "{% macro f() %}{{ g() }}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
		"a loop of itself":      "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
		"a caller of itself":    "{% macro m() %}{{ caller() }}{% endmacro %}{% macro f() %}{% call m() %}{{ f() }}{% endcall %}{% endmacro %}{{ f() }}",
		"a generator of itself": "{% set ns = namespace(g=[1]) %}{% for i in range(9999) %}{% set ns.g = ns.g|map('string') %}{% endfor %}{{ ns.g|list }}",
		"doubled text":          "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
		"doubled sums":          "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"doubled lists":         "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"nested lists":          "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
		"nested dicts":          "{% set ns = namespace(x={}) %}{% for i in range(99) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x|tojson }}",
		"nested and equal":      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
		"a deep list":           "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
		"a deep dict":           "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {1: ns.x} %}{% endfor %}{{ ns.x|tojson }}",
		"deep and equal":        "{% set ns = namespace(x=[], y=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
		"a nested key":          "{% set ns = namespace(x=(1,)) %}{% for i in range(99) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}",
		"a repeated text":       "{{ 'x' * 10000000000 }}",
		"repeats of repeats":    "{{ (('x' * 30000) * 30000) * 30000 }}",
		"a repeated list":       "{{ [1] * 10000000000 }}",
		"a range":               "{{ range(1000000000000)|list }}",
		"ranges":                "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = ns.x + [range(99999)] %}{% endfor %}",
		"a wide format":         "{{ '{:>999999}'.format('x') * 999999 }}",
		"a power":               "{{ 9 ** 999999999 }}",
		"replaced":              "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x|replace('a', 'aaaaaaaa') %}{% endfor %}",
		"indented":              "{{ ('\n' * 9999)|indent(9999, true, true) ~ ('\n' * 9999)|indent(9999, true, true) }}",
		"indented JSON":         "{{ range(99999)|list|tojson(indent=1000) }}{{ range(99999)|list|tojson(indent=1000) }}",
		"joined":                "{{ range(9999)|join('x' * 99999) }}",
		"split":                 "{% set t = '" + long + "' %}{% for i in range(9999) %}{{ t.split('x')|length }}{% endfor %}",
		"searched":              "{% set t = '" + long[2:] + "' %}{% for i in range(99999) %}{{ 'y' in t }}{% endfor %}",
		"compared":              "{% set t = '" + long[:500_000] + "' %}{% set u = t ~ 'a' %}{% for i in range(99999) %}{{ t < u }}{% endfor %}",
		"characters":            "{% set t = '" + long[2:] + "' %}{% for i in range(99999) %}{{ t[i] }}{% endfor %}",
		"sorted":                "{% for i in range(9999) %}{{ range(99999)|sort(reverse=true)|length }}{% endfor %}",
		"escaped":               "{% set ns = namespace(x='&&&&') %}{% for i in range(99) %}{% set ns.x = ns.x|string|e|string ~ ns.x %}{% endfor %}",
		"brackets":              deep("(", ")"),
		"lists":                 deep("[", "]"),
		"signs":                 deep("-", ""),
		"not":                   deep("not ", ""),
		"if":                    strings.Repeat("{% if 1 %}", 50_000) + strings.Repeat("{% endif %}", 50_000),
		"conditions":            deep("1 if 1 else ", ""),
		"a large template":      strings.Repeat("x", MostSource+1),
		"comments":              strings.Repeat("{#", 400_000),
		"raw":                   strings.Repeat("{% raw %}{%", 80_000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const bytes = DefaultBytes / 8
		tmpl, err := Parse(source)
		text := ""
		if err == nil {
			text, err = tmpl.Render(nil, Options{Steps: DefaultSteps / 8, Bytes: bytes})
		}
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: found a text of %d bytes, expected an error", name, len(text))
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20+8*bytes {
			t.Errorf("%s: found %d MiB, expected at most %d", name, took>>20, (64<<20+8*bytes)>>20)
		}
	}
}

// A template has no way to files, the network or the process.
func TestNothingOutsideIsReached(t *testing.T) {
	for _, source := range []string{
		"{% include '/etc/passwd' %}", "{% extends '/etc/passwd' %}", "{% import 'os' as os %}", "{% from 'os' import system %}",
		"{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ self.__init__ }}", "{{ lipsum.__globals__ }}", "{{ cycler.__init__.__globals__ }}",
		"{{ range.__self__ }}", "{{ open('/etc/passwd') }}", "{{ messages.append(1) }}",
	} {
		if text, err := render_(source, map[string]any{"messages": NewList(nil)}); err == nil {
			t.Errorf("%s: found %q, expected an error", source, text)
		}
	}
}

// Renderings of one template share nothing, and change none of their variables.
func TestRenderTwice(t *testing.T) {
	for name, source := range templates(t, "testdata/families") {
		tmpl, err := Parse(source)
		if err != nil {
			t.Fatal(name, err)
		}
		for chat, variables := range chats(t) {
			a, first := tmpl.Render(variables, Options{Now: now})
			b, second := tmpl.Render(variables, Options{Now: now})
			if a != b || (first == nil) != (second == nil) {
				t.Errorf("%s, %s: found %q, %v, then %q, %v", name, chat, a, first, b, second)
			}
		}
	}
}

// Text outside tags is kept, but for one newline at the end, and the forms of newlines.
func TestTextIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab \n\t}%#é日"))).Draw(t, "text")
		got, err := render_(text, nil)
		if err != nil || got != strings.TrimSuffix(text, "\n") {
			t.Fatalf("found %q, %v", got, err)
		}
	})
}

// What tojson writes of a value of JSON is the value.
func TestJSONIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var value func(depth int) any
		value = func(depth int) any {
			switch rapid.IntRange(0, 6-2*min(depth/3, 1)).Draw(t, "kind") {
			case 0:
				return nil
			case 1:
				return rapid.Bool().Draw(t, "bool")
			case 2:
				return rapid.Int64().Draw(t, "int")
			case 3:
				return rapid.Float64().Draw(t, "float")
			case 4:
				return rapid.String().Draw(t, "text")
			case 5:
				list := make([]any, rapid.IntRange(0, 3).Draw(t, "n"))
				for i := range list {
					list[i] = value(depth + 1)
				}
				return NewList(list)
			}
			d := NewDict()
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				d.Set(rapid.String().Draw(t, "key"), value(depth+1))
			}
			return d
		}
		x := value(0)
		for _, source := range []string{"{{ x|tojson }}", "{{ x|tojson(indent=2) }}", "{{ x|tojson(ensure_ascii=true) }}"} {
			text, err := render_(source, map[string]any{"x": x})
			if err != nil {
				t.Fatal(err)
			}
			back, err := FromJSON([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if r := (&render{steps: DefaultSteps}); !r.equal(x, back) {
				t.Fatalf("found %s", text)
			}
		}
	})
}

// FuzzRender: no template breaks the reader or the renderer.
func FuzzRender(f *testing.F) {
	for _, source := range templates(f, "testdata/families") {
		f.Add(source)
	}
	var table []struct{ Template string }
	readJSON(f, "testdata/language.json", &table)
	for _, c := range table {
		f.Add(c.Template)
	}
	all := chats(f)
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		if err != nil {
			return
		}
		for _, name := range []string{"user", "call"} {
			_, _ = tmpl.Render(all[name], Options{Now: now, Steps: 100_000, Bytes: 8 << 20})
		}
	})
}

func ExampleParse() {
	t, err := Parse("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}")
	if err != nil {
		panic(err)
	}
	text, err := t.Render(map[string]any{"messages": NewList([]any{NewDict("role", "user", "content", "Hello")})}, Options{})
	fmt.Println(text, err)
	// Output: <|user|>Hello <nil>
}
