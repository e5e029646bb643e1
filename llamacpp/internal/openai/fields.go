package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
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
	of      map[string]json.RawMessage
	failed  *failure
	ignored []string // names that nothing reads
}

// mostFields bounds the fields of an object, each of which takes some hundred bytes besides its text.
const mostFields = 1000

// parse reads a JSON object, and nothing after it. The fields are parts of the text.
func parse(body []byte) (*fields, *failure) {
	if !json.Valid(body) {
		var raw json.RawMessage
		return nil, wrong("", "body: found no JSON object: %v", json.Unmarshal(body, &raw)).code("invalid_json")
	}
	body = bytes.TrimSpace(body)
	switch c := body[0]; c {
	case '{':
	case 'n':
		return nil, wrong("", "body: found null, expected a JSON object").code("invalid_json")
	default:
		found := map[byte]string{'[': "an array", '"': "a string", 't': "true or false", 'f': "true or false"}[c]
		return nil, wrong("", "body: found %s, expected an object", cmp.Or(found, "a number")).code("invalid_json")
	}
	f := &fields{of: map[string]json.RawMessage{}}
	err := jsonscan.Value(body).Entries(func(name []byte, value jsonscan.Value) error {
		if _, twice := f.of[string(name)]; twice {
			return wrong("", "%.40s: found the field twice, expected it once", cmp.Or(string(name), `""`)).code("invalid_json")
		}
		if len(f.of) == mostFields {
			return wrong("", "found more than %d fields, expected at most these", mostFields).code("invalid_json")
		}
		f.of[string(name)] = json.RawMessage(value)
		return nil
	})
	if failed := (*failure)(nil); errors.As(err, &failed) {
		return nil, failed
	} else if err != nil {
		return nil, wrong("", "body: %v", err).code("invalid_json")
	}
	return f, nil
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
	if err := json.Unmarshal(raw, to); err != nil {
		f.fail(name, "found %s, expected %s", short(raw), expected)
		return false
	}
	return true
}

// list calls each for the elements of a list, in place: none takes memory of its own. It reports
// whether the field was there and all of them were good.
func (f *fields) list(name, expected string, each func(v jsonscan.Value) error) bool {
	raw := bytes.TrimSpace(f.of[name])
	if len(raw) == 0 || string(raw) == "null" {
		return false
	}
	if err := jsonscan.Value(raw).Array(each); err != nil && f.failed == nil {
		f.fail(name, "found %s, expected %s", short(raw), expected)
	}
	return f.failed == nil
}

// integerOf reads a number of JSON, which has no integers of its own: one with an integral value is
// one, also 28.0 and 2.8e1. It takes no memory.
func integerOf(v []byte) (x int64, ok bool) {
	at, n, zeros, power, point := 0, uint64(0), 0, 0, false // n * 10^(zeros+power)
	if len(v) > 0 && v[0] == '-' {
		at++
	}
	if at == len(v) || v[at] < '0' || v[at] > '9' {
		return 0, false // no number
	}
	times := func(digits int) bool { // as long as n stays below 2^64
		for ; digits > 0 && n > 0; digits-- {
			if n > math.MaxUint64/10 {
				return false
			}
			n *= 10
		}
		return true
	}
	for ; at < len(v) && v[at]|0x20 != 'e'; at++ {
		if v[at] == '.' {
			point = true
			continue
		}
		if point {
			power--
		}
		if zeros++; v[at] != '0' {
			digit := uint64(v[at] - '0')
			if !times(zeros) || n > math.MaxUint64-digit {
				return 0, false
			}
			n, zeros = n+digit, 0
		}
	}
	if n == 0 {
		return 0, true
	}
	if at < len(v) {
		e, err := strconv.Atoi(string(v[at+1:]))
		if err != nil {
			return 0, false
		}
		power += e
	}
	if power += zeros; power < 0 || !times(power) {
		return 0, false
	}
	switch {
	case v[0] != '-':
		return int64(n), n <= math.MaxInt64
	case n <= 1<<63:
		return -int64(n), true
	}
	return 0, false
}

// tokenID reads the id of a token, without memory of its own.
func tokenID(v jsonscan.Value) (uint32, error) {
	id, ok := integerOf(v)
	if !ok || id < 0 || id > math.MaxUint32 {
		return 0, v.Found("the id of a token")
	}
	return uint32(id), nil
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

// integer reads an integer of a range.
func (f *fields) integer(name string, of, low, high int64) int64 {
	raw := bytes.TrimSpace(f.of[name])
	if len(raw) == 0 || string(raw) == "null" {
		return of
	}
	expected := fmt.Sprintf("an integer, %d to %d", low, high)
	x, ok := integerOf(raw)
	switch {
	case !ok:
		f.fail(name, "found %s, expected %s", short(raw), expected)
		return of
	case x < low || x > high:
		f.fail(name, "found %d, expected %s", x, expected)
		return of
	}
	return x
}

func (f *fields) boolean(name string) (x bool) {
	f.get(name, "true or false", &x)
	return x
}

// fresh reports whether cache_prompt, which is true without it, as in llama-server, is false.
func (f *fields) fresh() bool {
	use := true
	f.get("cache_prompt", "true or false", &use)
	return !use
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
	raw := bytes.TrimSpace(f.of[name])
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] != '{' {
		f.fail(name, "found %s, expected an object", short(raw))
		return nil
	}
	o, failed := parse(raw)
	if failed != nil {
		f.fail(name, "%s", failed.Message)
	}
	return o
}

// texts reads a string, or a list of at most so many strings, which it counts before it reads them.
func (f *fields) texts(name, expected string, most int) (list []string) {
	raw := bytes.TrimSpace(f.of[name])
	if len(raw) > 0 && raw[0] == '"' {
		list = make([]string, 1)
		f.get(name, expected, &list[0])
		return list
	}
	n := 0
	if !f.list(name, expected, func(v jsonscan.Value) error {
		if n++; v[0] != '"' {
			return v.Found("a string")
		}
		return nil
	}) {
		return nil
	}
	if n > most {
		f.fail(name, "found %d strings, expected at most %d", n, most)
		return nil
	}
	f.list(name, expected, func(v jsonscan.Value) error {
		text, err := v.Bytes()
		list = append(list, string(text))
		return err
	})
	return list
}
