package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// tree reads a whole text into what json.Unmarshal makes of it with numbers as
// json.Number, by the scanner's methods alone.
func tree(data []byte) (v any, err error) {
	s := New(data)
	if v, err = value(s); err != nil {
		return nil, err
	}
	return v, s.End()
}

func value(s *Scanner) (any, error) {
	switch s.Kind() {
	case '{':
		m := map[string]any{}
		return m, s.Object(func(name []byte) error {
			key := string(name)
			v, err := value(s)
			m[key] = v
			return err
		})
	case '[':
		a := []any{}
		err := s.Array(func() error {
			v, err := value(s)
			a = append(a, v)
			return err
		})
		return a, err
	case '"':
		b, err := s.Bytes()
		return string(b), err
	case 't', 'f', 'n':
		v, found, err := s.Bool()
		if !found {
			return nil, err
		}
		return v, err
	case 0:
		text, err := s.Number()
		return json.Number(text), err
	}
	return nil, s.Skip()
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

// What the scanner takes is what encoding/json takes, and it reads the same.
func FuzzScanner(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-2.5e+3,0.1,true,false,null,"x\u00e9\n\ud83d\ude00"],"b":{}}`, ` [ ] `, `"\q"`, `01`, `-`, `1.`, `1e`, `[1,]`, `{"a" 1}`, `{"a":1,}`,
		`nul`, `truex`, "\"\x01\"", `"`, `"\u12`, "\"\xff\"", `{1:2}`, `[1 2]`, ``, "\x00", strings.Repeat("[", 101) + strings.Repeat("]", 101),
		strings.Repeat("[", 100) + strings.Repeat("]", 100), `{"a":1}x`, "\ufeff1", `{"\u0061":1}`, `1E400`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		skip := New(data)
		skipped := skip.Skip()
		if skipped == nil {
			skipped = skip.End()
		}
		got, err := tree(data)
		if !utf8.Valid(data) || json.Valid(data) && depth(data) > maxDepth {
			if err == nil {
				t.Fatal("it was read, though it is not UTF-8 or too deep")
			}
			return
		}
		if (err == nil) != json.Valid(data) || (skipped == nil) != (err == nil) {
			t.Fatalf("error %v, skipped with %v; valid: %v", err, skipped, json.Valid(data))
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

func TestNumbers(t *testing.T) {
	if x, found, err := New([]byte(" 0.0625 ")).Float(); x != 0.0625 || !found || err != nil {
		t.Errorf("%v, %v, %v", x, found, err)
	}
	if x, found, err := New([]byte("null")).Float(); x != 0 || found || err != nil {
		t.Errorf("null: %v, %v, %v", x, found, err)
	}
	for text, want := range map[string]string{
		"1e999": `found "1e999" at byte 0, expected a number within float64`,
		`"30"`:  `found "\"" at byte 0, expected a number`,
		"":      `found the end of the JSON, expected a number`,
	} {
		if _, _, err := New([]byte(text)).Float(); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"1.5":                  `found "1.5" at byte 0, expected an integer`,
		"99999999999999999999": `found "99999999999999999999" at byte 0, expected an integer`,
		"true":                 `found "t" at byte 0, expected a number`,
	} {
		if _, err := New([]byte(text)).Int(); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"-1":  `found "-1" at byte 0, expected an integer of 0 or more within 63 bits`,
		"-0":  `found "-0" at byte 0, expected an integer of 0 or more within 63 bits`,
		"1e0": `found "1e0" at byte 0, expected an integer of 0 or more within 63 bits`,
		"[":   `found "[" at byte 0, expected a number`,
	} {
		want = strings.Replace(want, "63", fmt.Sprint(strconv.IntSize-1), 1)
		if _, err := New([]byte(text)).Count(); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if n, err := New([]byte(" 30,")).Count(); n != 30 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if v, found, err := New([]byte("false")).Bool(); v || !found || err != nil {
		t.Errorf("false: %v, %v, %v", v, found, err)
	}
	if _, _, err := New([]byte("0")).Bool(); err == nil {
		t.Error("0 is a bool")
	}
}

// To go over a text takes no memory, however many strings are in it.
func TestNothingIsKept(t *testing.T) {
	text := []byte(`{"vocab":{` + strings.Repeat(`"piece":12,`, 1000) + `"end":[1.5,true,"x"]}}`)
	if n := testing.AllocsPerRun(10, func() {
		if err := New(text).Skip(); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations, want the few of closures", n)
	}
}
