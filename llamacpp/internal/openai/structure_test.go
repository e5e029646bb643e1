package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const person = `{"type":"object","properties":{"name":{"type":"string","maxLength":8},"kind":{"enum":["sailor","farmer"]},"age":{"type":"integer","minimum":0,"maximum":150},
	"tags":{"type":"array","items":{"enum":["old","new"]},"maxItems":2}},"required":["name","kind","age","tags"],"additionalProperties":false}`

// checked fails for a text that is none of a schema.
func checked(t *testing.T, schema, text string) {
	t.Helper()
	x, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("s.json", x); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err == nil {
		err = compiled.Validate(value)
	}
	if err != nil {
		t.Errorf("found %q: %v", text, err)
	}
}

// deltas posts a chat, and returns the deltas of the stream and its finish_reason.
func (s *served) deltas(t *testing.T, body string) (list []map[string]any, reason any) {
	t.Helper()
	r, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var x map[string]any
		if err := json.Unmarshal([]byte(data), &x); err != nil {
			t.Fatal(err)
		}
		list = append(list, at(t, x, "choices", 0, "delta").(map[string]any))
		if f := at(t, x, "choices", 0, "finish_reason"); f != nil {
			reason = f
		}
	}
	return list, reason
}

// Answers have the form that is asked for, whatever the model: by a schema, by a grammar, and as calls
// of tools, in one piece and in a stream.
func TestFormsOfAnswers(t *testing.T) {
	s := serve(t, 1024, nil)
	const who = `{"messages":[{"role":"user","content":"Who?"}]`
	const chat = who + `,"max_tokens":300`
	for _, rest := range []string{`,"temperature":0`, `,"temperature":1,"top_p":1,"top_k":0,"min_p":0,"seed":1`, `,"seed":2`, `,"seed":3,"logprobs":true,"top_logprobs":2`, `,"temperature":1,"frequency_penalty":1,"seed":4`} {
		x := s.ok(t, "/v1/chat/completions", chat+rest+`,"response_format":{"type":"json_schema","json_schema":{"name":"person","strict":true,"schema":`+person+`}}}`)
		if reason := at(t, x, "choices", 0, "finish_reason"); reason != "stop" {
			t.Errorf("%s: found the reason %v", rest, reason)
		}
		checked(t, person, at(t, x, "choices", 0, "message", "content").(string))
		x = s.ok(t, "/v1/completions", `{"prompt":"It is","max_tokens":9`+strings.Replace(rest, `"logprobs":true,"top_logprobs":2`, `"logprobs":2`, 1)+`,"grammar":"root ::= \" \" (\"yes\" | \"no\") \"!\"?"}`)
		if text := at(t, x, "choices", 0, "text").(string); !strings.Contains("| yes| no| yes!| no!|", "|"+text+"|") || at(t, x, "choices", 0, "finish_reason") != "stop" {
			t.Errorf("%s: found %q", rest, text)
		}
	}
	// A complete text ends, also where the end is not among the tokens that may be written.
	a := uint32(0)
	for s.m.Piece(a) != "a" {
		a++
	}
	for _, rest := range []string{"", `,"logprobs":1`, `,"temperature":0`, `,"stream":false,"seed":5`} {
		x := s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":"It is","max_tokens":9,"grammar":"root ::= \"a\"","allowed_tokens":[%d]%s}`, a, rest))
		if text, reason := at(t, x, "choices", 0, "text"), at(t, x, "choices", 0, "finish_reason"); text != "a" || reason != "stop" {
			t.Errorf("%s: found %q and the reason %v, expected a and stop", rest, text, reason)
		}
	}
	x := s.ok(t, "/v1/chat/completions", who+`,"temperature":0,"response_format":{"type":"json_object"},"max_tokens":20}`)
	if text := at(t, x, "choices", 0, "message", "content").(string); !strings.HasPrefix(text, "{") {
		t.Errorf("found %q, expected the beginning of an object", text)
	}
	tools := `,"tools":[{"type":"function","function":{"name":"find","parameters":` + person + `}},{"type":"function","function":{"name":"none"}}]`
	for _, choice := range []string{`"required"`, `{"type":"function","function":{"name":"find"}}`, `{"type":"function","function":{"name":"none"}}`} {
		body := chat + `,"temperature":0` + tools + `,"tool_choice":` + choice + `,"parallel_tool_calls":false`
		x := s.ok(t, "/v1/chat/completions", body+`}`)
		message := at(t, x, "choices", 0, "message").(map[string]any)
		calls, _ := message["tool_calls"].([]any)
		if len(calls) != 1 || message["content"] != nil || at(t, x, "choices", 0, "finish_reason") != "tool_calls" {
			t.Fatalf("%s: found %v", choice, x)
		}
		name, arguments := at(t, calls[0], "function", "name").(string), at(t, calls[0], "function", "arguments").(string)
		if schema := map[string]string{"find": person, "none": `{"maxProperties":0}`}[name]; schema == "" || !strings.HasPrefix(choice, `"`) && !strings.Contains(choice, name) {
			t.Errorf("%s: found the name %q", choice, name)
		} else {
			checked(t, schema, arguments)
		}
		var streamed, named string
		deltas, reason := s.deltas(t, body+`,"stream":true}`)
		for _, d := range deltas {
			if d["tool_calls"] == nil {
				continue
			}
			if id := at(t, d, "tool_calls", 0).(map[string]any)["id"]; id != nil {
				named += fmt.Sprint(at(t, d, "tool_calls", 0, "function", "name"))
			}
			streamed += at(t, d, "tool_calls", 0, "function", "arguments").(string)
		}
		if streamed != arguments || named != name || reason != "tool_calls" {
			t.Errorf("%s: found %q, %q and %v in a stream, expected %q, %q", choice, named, streamed, reason, name, arguments)
		}
	}
	// Text without a call is text.
	body := who + `,"temperature":0,"max_tokens":12` + tools
	text := at(t, s.ok(t, "/v1/chat/completions", body+`}`), "choices", 0, "message", "content").(string)
	deltas, _ := s.deltas(t, body+`,"stream":true}`)
	streamed := ""
	for _, d := range deltas {
		part, _ := d["content"].(string)
		streamed += part
	}
	if text == "" || streamed != text {
		t.Errorf("found %q and %q in a stream, expected one text", text, streamed)
	}
	s.ok(t, "/v1/chat/completions", who+`,"max_tokens":1`+tools+`,"tool_choice":"none"}`)
}
