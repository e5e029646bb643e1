package openai

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/llamacpp"
)

// joinedCalls is an answer with calls, without their ids.
type joinedCalls struct {
	Content string
	Calls   [][2]string // names and arguments
}

// join puts the parts of an answer together, as clients do.
func join(t interface{ Fatalf(string, ...any) }, list []callDelta) (x joinedCalls) {
	for _, d := range list {
		switch {
		case !d.call:
			x.Content += d.content
		case d.id != "":
			if d.index != len(x.Calls) || d.name == "" {
				t.Fatalf("found the beginning %+v after %d calls", d, len(x.Calls))
			}
			x.Calls = append(x.Calls, [2]string{d.name, d.parts})
		default:
			if d.index != len(x.Calls)-1 {
				t.Fatalf("found the part %+v after %d calls", d, len(x.Calls))
			}
			x.Calls[d.index][1] += d.parts
		}
	}
	return x
}

var answers = []struct {
	text string
	want joinedCalls
}{
	{"Hello.", joinedCalls{Content: "Hello."}},
	{" Hello < <tool> \n", joinedCalls{Content: " Hello < <tool> \n"}},
	{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}</tool_call>\\\"{\"}}\n</tool_call>", joinedCalls{Calls: [][2]string{{"f", `{"a": "}</tool_call>\"{"}`}}}},
	{"Let me look.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": [1, {\"y\": 2}]}}\n</tool_call>\n",
		joinedCalls{"Let me look.", [][2]string{{"f", "{}"}, {"g", `{"x": [1, {"y": 2}]}`}}}},
	{"<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>", joinedCalls{Calls: [][2]string{{"f", `{"a": 1}`}}}},
	{"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", joinedCalls{Calls: [][2]string{{"f", `{"a": 1}`}}}},
	{"<tool_call>{\"name\": \"f\", \"parameters\": {\"a\": 1}}</tool_call>", joinedCalls{Calls: [][2]string{{"f", `{"a": 1}`}}}},
	{"<tool_call>{\"name\": \"f\"}</tool_call>", joinedCalls{Calls: [][2]string{{"f", `{}`}}}},
	{"<tool_call>no call</tool_call> rest", joinedCalls{Content: "<tool_call>no call</tool_call> rest"}},
	{"<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>", joinedCalls{Content: "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>"}},
	{"<tool_call>{\"name\": \"\", \"arguments\": {\"a\": 1}}</tool_call>", joinedCalls{Content: "<tool_call>{\"name\": \"\", \"arguments\": {\"a\": 1}}</tool_call>"}},
	{"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"cut", joinedCalls{Calls: [][2]string{{"f", `{"a": "cut`}}}},
	{"<tool_call>{\"na", joinedCalls{Content: "<tool_call>{\"na"}},
	{"{\"name\": \"f\", \"arguments\": {\"a\": 1}}", joinedCalls{Calls: [][2]string{{"f", `{"a": 1}`}}}},
	{"\n```json\n{\"name\": \"g\", \"arguments\": {\"a\": 1}}\n```\n{\"name\": \"f\", \"arguments\": {}}", joinedCalls{Calls: [][2]string{{"g", `{"a": 1}`}, {"f", `{}`}}}},
	{"{\"arguments\": {\"a\": 1}, \"name\": \"f\"}", joinedCalls{Calls: [][2]string{{"f", `{"a": 1}`}}}},
	{"{\"name\": \"unknown\", \"arguments\": {\"a\": 1}}", joinedCalls{Content: "{\"name\": \"unknown\", \"arguments\": {\"a\": 1}}"}},
	{"{\"a\": 1}", joinedCalls{Content: "{\"a\": 1}"}},
	{"```", joinedCalls{Content: "```"}},
	{"{\"name\": \"f\", \"arguments\": {}}\n`f` is called.", joinedCalls{"`f` is called.", [][2]string{{"f", "{}"}}}},
	{"a<tool_call></tool_call> b <tool_call>}", joinedCalls{Content: "a<tool_call></tool_call> b<tool_call>}"}},
	{"The object {\"name\": \"f\", \"arguments\": {}} is a call.", joinedCalls{Content: "The object {\"name\": \"f\", \"arguments\": {}} is a call."}},
}

// Calls are found in the text of an answer, whole and in parts of any size, and no text is lost.
func TestCallsInTheTextOfAnAnswer(t *testing.T) {
	names := &tools{list: []tool{{name: "f"}, {name: "g"}}}
	read := func(t interface{ Fatalf(string, ...any) }, parts []string) joinedCalls {
		c := names.reader()
		var list []callDelta
		for _, part := range parts {
			list = append(list, c.add(part)...)
		}
		return join(t, append(list, c.end()...))
	}
	for _, a := range answers {
		if found := read(t, []string{a.text}); !reflect.DeepEqual(found, a.want) {
			t.Errorf("%q: found %+v, expected %+v", a.text, found, a.want)
		}
		if found := read(t, strings.Split(a.text, "")); !reflect.DeepEqual(found, a.want) {
			t.Errorf("%q in bytes: found %+v, expected %+v", a.text, found, a.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom(answers).Draw(t, "answer")
		var parts []string
		for rest := a.text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "bytes")
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		if found := read(t, parts); !reflect.DeepEqual(found, a.want) {
			t.Fatalf("%q: found %+v, expected %+v", parts, found, a.want)
		}
	})
}

func FuzzCalls(f *testing.F) {
	for _, a := range answers {
		f.Add(a.text, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		names := &tools{list: []tool{{name: "f"}, {name: "g"}}}
		whole, parts := names.reader(), names.reader()
		want := join(t, append(whole.add(text), whole.end()...))
		var list []callDelta
		for rest := text; rest != ""; {
			k := min(int(n)%7+1, len(rest))
			list = append(list, parts.add(rest[:k])...)
			rest = rest[k:]
		}
		if found := join(t, append(list, parts.end()...)); !reflect.DeepEqual(found, want) {
			t.Fatalf("%q in parts of %d: found %+v, expected %+v", text, n%7+1, found, want)
		}
	})
}

// A template without tools gets them as texts.
func TestToolsForATemplateWithoutThem(t *testing.T) {
	x := &tools{raw: json.RawMessage(`[ {"type": "function", "function": {"name": "f"}} ]`)}
	list, failed := x.describe([]llamacpp.Message{
		{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"},
		{Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":"{\"a\": 1}"}},{"function":{"name":"f","arguments":""}}]`)},
		{Role: "tool", Content: "one"}, {Role: "tool", Content: "two"}, {Role: "user", Content: "And?"},
	})
	if failed != nil {
		t.Fatal(failed)
	}
	var roles []string
	for _, m := range list {
		roles = append(roles, m.Role)
	}
	if fmt.Sprint(roles) != "[system user assistant user user]" || !strings.HasPrefix(list[0].Content, "Be brief.\n\n") || !strings.Contains(list[0].Content, `{"type":"function","function":{"name":"f"}}`) {
		t.Fatalf("found %+v", list)
	}
	if want := "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"; list[2].Content != want {
		t.Errorf("found %q, expected %q", list[2].Content, want)
	}
	if want := "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"; list[3].Content != want {
		t.Errorf("found %q, expected %q", list[3].Content, want)
	}
	// Where no tool may be called any more, earlier calls are texts still.
	var none *tools
	list, failed = none.describe([]llamacpp.Message{
		{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"},
		{Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":"{}"}}]`)}, {Role: "tool", Content: "one"},
	})
	if failed != nil || len(list) != 4 || list[0].Content != "Be brief." || !strings.Contains(list[2].Content, `"f"`) || list[3].Role != "user" || !strings.Contains(list[3].Content, "one") {
		t.Errorf("without tools: found %+v, %v", list, failed)
	}
}
