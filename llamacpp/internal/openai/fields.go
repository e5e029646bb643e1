package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/internal/jsonscan"
)

// failure is an answer that is an error, in the shape of OpenAI's.
type failure struct {
	status  int
	allow   string  // the methods of the path, of a request with another
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (f *failure) Error() string { return f.Message }

// wrong returns the failure of a wrong request. An empty param means no parameter.
func wrong(param, format string, a ...any) *failure {
	f := &failure{status: http.StatusBadRequest, Message: fmt.Sprintf(format, a...), Type: "invalid_request_error"}
	if param != "" {
		f.Message, f.Param = param+": "+f.Message, &param
	}
	return f
}

func (f *failure) code(code string) *failure {
	f.Code = &code
	return f
}

func (f *failure) with(status int) *failure {
	f.status = status
	return f
}

// fields are the fields of a JSON object. Their names are exact: a name in letters of another case
// is another field. Readers of fields take null for a field that is not there, and keep the first
// failure.
type fields struct {
	of     map[string]json.RawMessage
	failed *failure
}

// parse reads a JSON object, and nothing after it.
func parse(body []byte) (*fields, *failure) {
	f := &fields{}
	err := json.Unmarshal(body, &f.of)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		found := map[string]string{"array": "an array", "bool": "true or false"}[kind.Value]
		return nil, wrong("", "body: found %s, expected an object", cmp.Or(found, "a "+kind.Value)).code("invalid_json")
	case err != nil:
		return nil, wrong("", "body: found no JSON object: %v", err).code("invalid_json")
	case f.of == nil:
		return nil, wrong("", "body: found null, expected a JSON object").code("invalid_json")
	}
	if name := twice(body); name != "" {
		return nil, wrong("", "%.40s: found the field twice, expected it once", name).code("invalid_json")
	}
	return f, nil
}

// twice returns the name of a field of a valid object that is there twice, "" for none.
func twice(object []byte) (name string) {
	seen := map[string]bool{}
	_ = jsonscan.Value(bytes.TrimSpace(object)).Entries(func(key []byte, _ jsonscan.Value) error {
		if seen[string(key)] && name == "" {
			name = cmp.Or(string(key), `""`)
		}
		seen[string(key)] = true
		return nil
	})
	return name
}

// notUnicode describes the first bytes of a JSON text that encoding/json would replace in silence:
// bytes that are no UTF-8, and half a surrogate pair, as \ud83d. It returns "" if there are none.
func notUnicode(body []byte) string {
	for at := 0; at < len(body); {
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Sprintf("the byte 0x%02x at byte %d, which is no UTF-8", body[at], at)
		}
		if r != '\\' {
			at += size
			continue
		}
		if r, size = escaped(body[at:]); utf16.IsSurrogate(r) {
			low, more := escaped(body[at+size:])
			if utf16.DecodeRune(r, low) == utf8.RuneError {
				return fmt.Sprintf("%s at byte %d, which is half a surrogate pair", body[at:at+size], at)
			}
			size += more
		}
		at += size
	}
	return ""
}

// escaped returns the number of the escape \uXXXX that a text begins with, and its size; 0 for
// others, which have two bytes.
func escaped(text []byte) (r rune, size int) {
	if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
		if n, err := strconv.ParseUint(string(text[2:6]), 16, 16); err == nil {
			return rune(n), 6
		}
	}
	return 0, 2
}

func (f *fields) fail(name, format string, a ...any) {
	if f.failed == nil {
		f.failed = wrong(name, format, a...)
	}
}

// get decodes a field into to, and reports whether it was there.
func (f *fields) get(name, expected string, to any) bool {
	raw, ok := f.of[name]
	if !ok || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, to); err != nil || hasNull(raw, to) {
		f.fail(name, "found %s, expected %s", short(raw), expected)
		return false
	}
	return true
}

// hasNull reports whether a list or an object of numbers or texts has a null, which encoding/json
// takes for 0 or "".
func hasNull(raw json.RawMessage, to any) bool {
	switch to.(type) {
	case *[]uint32, *[]string:
		var of []*json.RawMessage
		return json.Unmarshal(raw, &of) != nil || slices.Contains(of, nil)
	case *map[string]float64:
		var of map[string]*json.RawMessage
		if json.Unmarshal(raw, &of) != nil {
			return true
		}
		for _, x := range of {
			if x == nil {
				return true
			}
		}
	}
	return false
}

// short is JSON as a message shows it.
func short(raw []byte) string {
	const most = 60
	raw = bytes.TrimSpace(raw)
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "..."
	}
	return string(raw)
}

// number reads a number of a range.
func (f *fields) number(name string, of, low, high float64) float64 {
	x := of
	if f.get(name, "a number", &x) && !(x >= low && x <= high) {
		f.fail(name, "found %v, expected %v to %v", x, low, high)
		return of
	}
	return x
}

// integer reads an integer of a range. JSON has no integers: 3.0 is one.
func (f *fields) integer(name string, of, low, high int64) int64 {
	var n json.Number
	expected := fmt.Sprintf("an integer, %d to %d", low, high)
	if !f.get(name, expected, &n) {
		return of
	}
	if raw := f.of[name]; raw[0] == '"' { // which json.Number takes too
		f.fail(name, "found %s, expected %s", short(raw), expected)
		return of
	}
	x, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil {
		y, err := n.Float64()
		if err != nil || y != math.Trunc(y) || math.Abs(y) > 1<<53 {
			f.fail(name, "found %s, expected %s", short(f.of[name]), expected)
			return of
		}
		x = int64(y)
	}
	if x < low || x > high {
		f.fail(name, "found %d, expected %s", x, expected)
		return of
	}
	return x
}

func (f *fields) boolean(name string) (x bool) {
	f.get(name, "true or false", &x)
	return x
}

// has reports whether a field exists and is not null, an empty string, list or object.
func (f *fields) has(name string) bool {
	switch raw := bytes.TrimSpace(f.of[name]); string(raw) {
	case "", "null", `""`, "false":
		return false
	default:
		return raw[0] != '[' && raw[0] != '{' || len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
	}
}

// object reads the fields of an object, nil if it is not there.
func (f *fields) object(name string) *fields {
	var raw map[string]json.RawMessage
	if !f.get(name, "an object", &raw) {
		return nil
	}
	o, failed := parse(f.of[name])
	if failed != nil {
		f.fail(name, "%s", failed.Message)
	}
	return o
}

// texts reads a string, or a list of strings.
func (f *fields) texts(name, expected string) (list []string) {
	raw := bytes.TrimSpace(f.of[name])
	if len(raw) > 0 && raw[0] == '"' {
		list = make([]string, 1)
		f.get(name, expected, &list[0])
		return list
	}
	f.get(name, expected, &list)
	return list
}
