package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// tree reads a text with the methods of values alone, into the same types as json.Unmarshal, with
// numbers as json.Number.
func tree(data []byte) (any, error) {
	v, err := Parse(data)
	if err != nil {
		return nil, err
	}
	return value(v)
}

func value(v Value) (any, error) {
	switch v[0] {
	case '{':
		m := map[string]any{}
		return m, v.Entries(func(name []byte, v Value) (err error) {
			m[string(name)], err = value(v)
			return err
		})
	case '[':
		a := []any{}
		err := v.Array(func(v Value) error {
			x, err := value(v)
			a = append(a, x)
			return err
		})
		return a, err
	case '"':
		b, err := v.Bytes()
		return string(b), err
	case 't', 'f':
		return v.Bool()
	case 'n':
		if !v.IsNull() || string(v) != "null" {
			return nil, fmt.Errorf("%q is no null", v)
		}
		return nil, nil
	}
	return json.Number(v), nil
}

// depth returns how deep brackets are nested in a valid text.
func depth(data []byte) (deepest int) {
	d := json.NewDecoder(bytes.NewReader(data))
	at := 0
	for {
		tok, err := d.Token()
		if err != nil {
			return deepest
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			at++
			deepest = max(deepest, at)
		case json.Delim('}'), json.Delim(']'):
			at--
		}
	}
}

// The scanner takes the same texts as encoding/json, and reads the same values.
func FuzzScanner(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-2.5e+3,0.1,true,false,null,"x\u00e9\n\ud83d\ude00"],"b":{}}`, ` [ ] `, `"\q"`, `01`, `-`, `1.`, `1e`, `[1,]`, `{"a" 1}`, `{"a":1,}`,
		`nul`, `truex`, "\"\x01\"", `"`, `"\u12`, "\"\xff\"", `{1:2}`, `[1 2]`, ``, "\x00", strings.Repeat("[", 101) + strings.Repeat("]", 101),
		strings.Repeat("[", 100) + strings.Repeat("]", 100), `{"a":1}x`, "\ufeff1", `{"\u0061":1}`, `1E400`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := tree(data)
		if !utf8.Valid(data) || json.Valid(data) && depth(data) > maxDepth {
			if err == nil {
				t.Fatal("it was read, though it is not UTF-8 or too deep")
			}
			return
		}
		if (err == nil) != json.Valid(data) {
			t.Fatalf("error %v; valid: %v", err, json.Valid(data))
		}
		if err != nil {
			if text := err.Error(); !strings.Contains(text, "found ") || !strings.Contains(text, ", expected ") {
				t.Errorf("error %q", text)
			}
			return
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Fatalf("found %#v, want %#v", got, want)
		}
	})
}

func TestWrongValues(t *testing.T) {
	read := map[string]func(v Value) error{
		"float":  func(v Value) error { _, err := v.Float(); return err },
		"int":    func(v Value) error { _, err := v.Int(); return err },
		"bool":   func(v Value) error { _, err := v.Bool(); return err },
		"string": func(v Value) error { _, err := v.Bytes(); return err },
		"object": func(v Value) error { return v.Object(func([]byte, Value) error { return nil }) },
		"array":  func(v Value) error { return v.Array(func(Value) error { return nil }) },
	}
	for _, c := range []struct{ as, text, want string }{
		{"float", ` 0.0625 `, ""},
		{"float", `1e999`, `found "1e999", expected a number within float64`},
		{"float", `"30"`, `found "\"30\"", expected a number within float64`},
		{"float", `null`, `found "null", expected a number within float64`},
		{"int", `-7`, ""},
		{"int", `1.5`, `found "1.5", expected an integer`},
		{"int", `99999999999999999999`, `found "99999999999999999999", expected an integer`},
		{"int", `true`, `found "true", expected an integer`},
		{"bool", `false`, ""},
		{"bool", `0`, `found "0", expected true or false`},
		{"string", `"\n"`, ""},
		{"string", `{"a":1}`, `found "{\"a\":1}", expected a string`},
		{"object", `{"a":1,"b":{"a":1}}`, ""},
		{"object", `{"a":1,"\u0061":2}`, `found "a" twice, expected it once`},
		{"object", `[]`, `found "[]", expected an object`},
		{"array", `[[],[{}]]`, ""},
		{"array", `{}`, `found "{}", expected an array`},
		{"array", `[1,]`, `found invalid character ']' looking for beginning of value at byte 3, expected JSON`},
		{"array", `[1`, `found unexpected end of JSON input at byte 1, expected JSON`},
		{"array", ``, `found unexpected end of JSON input, expected JSON`},
		{"array", "[\"\xff\"]", `found bytes that are not UTF-8, expected JSON`},
		{"array", strings.Repeat("[", 101) + strings.Repeat("]", 101), `found values within values 101 deep at byte 100, expected at most 100`},
	} {
		v, err := Parse([]byte(c.text))
		if err == nil {
			err = read[c.as](v)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%.40q as %s: error %v, want %q", c.text, c.as, err, c.want)
		}
	}
}

// Words that Python writes and JSON does not have are skipped, and are an error in place of a
// number.
func TestPython(t *testing.T) {
	for text, good := range map[string]bool{
		`{"a":[0.0,Infinity],"b":NaN,"c":-Infinity,"d":2}`: true, `{"a":"NaN, Infinity","b":NaN,"d":2}`: true, "{\"d\":2, \"x\":\n NaN }": true,
		`{"a":"\"NaN","b":-Infinity,"d":2}`: true,
		`{"d":2,"x":NaNs}`:                  false, `{"d":2,"x":1NaN}`: false, `{"d":2,NaN:1}`: false, `{"d":2,"x":--Infinity}`: false, `{"d":2,"x":+Infinity}`: false, `{"d":2,"x":nan}`: false, `{"d":2 NaN}`: false,
	} {
		v, err := ParsePython([]byte(text))
		if (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil {
			continue
		}
		found := 0
		err = v.Entries(func(name []byte, v Value) error {
			x, err := v.Float()
			switch string(name) {
			case "d":
				found++
				if x != 2 || err != nil {
					t.Errorf("%s: %v, %v", text, x, err)
				}
			default:
				if v[0] != '[' && err == nil {
					t.Errorf("%s: %s is read as %v", text, v, x)
				}
			}
			return nil
		})
		if err != nil || found != 1 {
			t.Errorf("%s: %v, %d", text, err, found)
		}
	}
}

// Scanning a text takes no memory, with any number of strings in it.
func TestNothingIsKept(t *testing.T) {
	text := []byte(`{"vocab":{` + strings.Repeat(`"piece":12,`, 1000) + `"end":[1.5,true,"x"]}}`)
	names := 0
	if n := testing.AllocsPerRun(10, func() {
		v, err := Parse(text)
		if err == nil {
			err = v.Entries(func(_ []byte, v Value) error {
				return v.Entries(func([]byte, Value) error { names++; return nil })
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}); n > 8 || names != 11*1001 {
		t.Errorf("%v allocations, want the few of closures; %d names", n, names)
	}
}
