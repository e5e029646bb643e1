package llamacpp_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s/llamacpp"
)

const (
	chatml  = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	objects = "{% for m in messages %}[{{ m.role }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.type }} {{ c.function.name }}{% for k, v in c.function.arguments|items %} {{ k }}={{ v }}{% endfor %}{% endfor %}]{% endfor %}"
	texts   = "{% for m in messages %}[{{ m.role }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.name + ' ' + c.function.arguments }}{% endfor %}]{% endfor %}"
	nulls   = "{% for m in messages %}[{{ m.role }}{% if m.content is none %}{% for c in m.tool_calls %}{{ c.function.name }} {{ c.function.arguments|tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}]{% endfor %}"
	empties = "{% for m in messages %}[{{ m.role + m.content }}{% for c in m.tool_calls or [] %}{{ c.function|tojson }}{% endfor %}]{% endfor %}"
	older   = "{% for m in messages %}[{{ m.role }}{{ m.content or '' }}{% if m.function_call %}{{ m.function_call.name }} {{ m.function_call.arguments|tojson }}{% endif %}]{% endfor %}"
	plain   = "{% for m in messages %}[{{ m.role }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.name ~ ' ' ~ c.function.arguments|tojson }}{% endfor %}]{% endfor %}"
	names   = "{% for m in messages %}[{{ m.name ~ ': ' if m.name else '' }}{{ m.content }}]{% endfor %}"
	users   = "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}[{{ m.content }}]{% endif %}{% endfor %}"
	answers = "{% for m in messages %}[{{ m.role }}{{ (m.content or '').split('</think>')[-1]|trim }}]{% endfor %}"
)

func says(role, content string) llamacpp.Message {
	return llamacpp.Message{Role: role, Content: content}
}

// template is a template without a model.
func template(t *testing.T, source string) *llamacpp.Template {
	t.Helper()
	if missing != "" || loaded != nil {
		t.Skip(missing, loaded)
	}
	tmpl, err := new(llamacpp.Model).Template(source)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestAChatIsRenderedWhole(t *testing.T) {
	call := llamacpp.Message{Role: "assistant", ToolCalls: json.RawMessage(`[{"id":"a","type":"function","function":{"name":"look","arguments":"{\"z\": 1, \"a\": \"é\"}"}}]`)}
	function := llamacpp.Message{Role: "assistant", FunctionCall: json.RawMessage(`{"name":"look","arguments":"{\"z\": 1}"}`)}
	both := call
	both.Content = "I look."
	thoughts := says("assistant", "<think>hm</think> Yes.")
	result := says("tool", "cold")
	named, refused := says("user", "u"), llamacpp.Message{Role: "assistant", Refusal: "No."}
	named.Name = "Ann"
	// Two calls, and their results: by ids, names, both, or neither.
	two := llamacpp.Message{Role: "assistant", ToolCalls: json.RawMessage(`[{"id":"a","function":{"name":"f","arguments":{}}},{"id":"b","function":{"name":"g","arguments":{}}}]`)}
	of := func(id, name string) llamacpp.Message {
		return llamacpp.Message{Role: "tool", Content: "of " + id + name, ToolCallID: id, Name: name}
	}
	calls := func(results ...llamacpp.Message) []llamacpp.Message {
		return append([]llamacpp.Message{says("user", "u"), two}, results...)
	}
	const ordered = `[useru][assistantf {}g {}]`
	for name, c := range map[string]struct {
		source   string
		messages []llamacpp.Message
		want     string // the text, or a part of the error
		index    int    // of the message in the error, -1 for none
	}{
		"all roles":            {chatml, []llamacpp.Message{says("system", "s"), says("user", "u"), says("tool", "t")}, "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>tool\nt<|im_end|>\n<|im_start|>assistant\n", -1},
		"a lost system":        {users, []llamacpp.Message{says("system", "Be brief."), says("user", "u")}, `messages[0].content: found a message of the role "system"`, 0},
		"a lost tool":          {users, []llamacpp.Message{says("user", "u"), says("tool", "cold")}, `role "tool"`, 1},
		"the words of another": {users, []llamacpp.Message{says("user", "It is cold."), says("tool", "cold")}, `role "tool"`, 1},
		"the second of equals": {"{{ messages[0].content }}", []llamacpp.Message{says("user", "a"), says("user", "a")}, `role "user"`, 1},
		"an empty one":         {users, []llamacpp.Message{says("system", " "), says("user", "u")}, "[u]", -1},
		"digits of the mark":   {users, []llamacpp.Message{says("user", "7305811946"), says("system", "7305811946000000")}, `role "system"`, 1},
		"thoughts":             {answers, []llamacpp.Message{says("user", "u"), thoughts}, "[useru][assistantYes.]", -1},
		"thoughts alone":       {answers, []llamacpp.Message{says("user", "u"), says("assistant", "<think>hm</think>")}, "[useru][assistant]", -1},
		"a refusal":            {"{% if messages|length > 1 %}{{ raise_exception('One only!') }}{% endif %}{{ messages[0].content }}", []llamacpp.Message{says("user", "a"), says("user", "b")}, "refuses the chat: One only!", -2},
		"an error":             {"{{ messages[0].content }}{% if messages|length > 1 %}{{ messages[1].x.y }}{% endif %}", []llamacpp.Message{says("user", "a"), says("user", "b")}, "line 1: 'dict object' has no attribute 'x'", -2},
		"content of JSON":      {"{% for m in messages %}{{ m.content|tojson }}{% endfor %}", []llamacpp.Message{says("user", "a\"b\nc")}, `"a\"b\nc"`, -1},
		"objects":              {objects, []llamacpp.Message{says("user", "u"), call, result}, "[useru][assistantfunction look z=1 a=é][toolcold]", -1},
		"texts":                {texts, []llamacpp.Message{says("user", "u"), call, result}, `[useru][assistantlook {"z": 1, "a": "é"}][toolcold]`, -1},
		"null":                 {nulls, []llamacpp.Message{says("user", "u"), call, result}, `[useru][assistantlook {"z": 1, "a": "é"}][toolcold]`, -1},
		"empty":                {empties, []llamacpp.Message{says("user", "u"), call, result}, `[useru][assistant{"name": "look", "arguments": {"z": 1, "a": "é"}}][toolcold]`, -1},
		"words and a call":     {objects, []llamacpp.Message{says("user", "u"), both, result}, "[useru][assistantI look.function look z=1 a=é][toolcold]", -1},
		"words for a call":     {"{% for m in messages %}[{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% else %}{{ m.content }}{% endif %}]{% endfor %}", []llamacpp.Message{says("user", "u"), both}, `messages[1].content: found a message of the role "assistant"`, 1},
		"a lost call":          {chatml, []llamacpp.Message{says("user", "u"), both, result}, "messages[1].tool_calls: found a call", 1},
		"the second call lost": {"{% for m in messages %}[{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls[0].function|tojson }}{% endif %}]{% endfor %}", []llamacpp.Message{says("user", "u"),
			{Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":{}}},{"function":{"name":"f","arguments":{}}}]`)}}, "messages[1].tool_calls", 1},
		"a function":          {older, []llamacpp.Message{says("user", "u"), function}, `[useru][assistantlook {"z": 1}]`, -1},
		"a function as calls": {objects, []llamacpp.Message{says("user", "u"), function}, "[useru][assistantfunction look z=1]", -1},
		"a lost function":     {chatml, []llamacpp.Message{says("user", "u"), function}, "messages[1].function_call: found a call", 1},
		"no arguments":        {objects, []llamacpp.Message{says("user", "u"), {Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f"}}]`)}}, "[useru][assistantfunction f]", -1},
		"wrong arguments":     {objects, []llamacpp.Message{says("user", "u"), {Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":"[1]"}}]`)}}, `messages[1].tool_calls[0].function.arguments: found "[1]", expected a JSON object`, 1},
		"deep arguments":      {objects, []llamacpp.Message{says("user", "u"), {Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":"` + strings.Repeat("[", 100_000) + `"}}]`)}}, "arguments: found", 1},
		"half a character":    {objects, []llamacpp.Message{says("user", "u"), {Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":"{\"x\":\"\\ud83d\"}"}}]`)}}, "messages[1].tool_calls[0].function.arguments: found", 1},
		"an argument twice":   {objects, []llamacpp.Message{says("user", "u"), {Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","arguments":"{\"x\":1,\"x\":2}"}}]`)}}, `found the name "x" twice`, 1},
		"a name twice":        {objects, []llamacpp.Message{says("user", "u"), {Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"name":"f","name":"g","arguments":{}}}]`)}}, `messages[1].tool_calls: found the name "name" twice in an object`, 1},
		"no name":             {objects, []llamacpp.Message{says("user", "u"), {Role: "assistant", ToolCalls: json.RawMessage(`[{"function":{"arguments":"{}"}}]`)}}, "messages[1].tool_calls[0].function.name: found none", 1},
		"no list":             {objects, []llamacpp.Message{says("user", "u"), {Role: "assistant", ToolCalls: json.RawMessage(`{"a":1}`)}}, "messages[1].tool_calls: found no list", 1},
		"a name":              {names, []llamacpp.Message{named}, "[Ann: u]", -1},
		"a lost name":         {chatml, []llamacpp.Message{says("system", "Ann"), named}, `messages[1].name: found "Ann"`, 1},
		"names of one":        {"{% for m in messages %}[{{ m.content }}{{ messages[0].name }}]{% endfor %}", []llamacpp.Message{named, named}, `messages[1].name: found "Ann"`, 1},
		"a name compared":     {"{% for m in messages %}{% if m.name and m.name != 'Ann' %}{{ raise_exception('Ann alone') }}{% endif %}{{ m.name }}{{ m.content }}{% endfor %}", []llamacpp.Message{named}, "Annu", -1},
		"said no":             {"{% for m in messages %}[{{ m.refusal or m.content }}]{% endfor %}", []llamacpp.Message{says("user", "u"), refused}, "[u][No.]", -1},
		"a lost no":           {answers, []llamacpp.Message{says("user", "No."), refused}, "messages[1].refusal: found one", 1},
		"llama.cpp's, a name": {"chatml", []llamacpp.Message{named}, "messages[0].name", 0},
		"ids in order":        {plain, calls(of("a", ""), of("b", "")), ordered + "[toolof a][toolof b]", -1},
		"ids out of order":    {plain, calls(of("b", ""), of("a", "")), `messages[2].tool_call_id: found "b"`, 2},
		"a result is missing": {plain, calls(of("b", "")), `expected "a": results in the order of the calls`, 2},
		"one too many":        {plain, calls(of("a", ""), of("b", ""), of("c", "")), `messages[4].tool_call_id: found "c"`, 4},
		"an id of no call":    {plain, []llamacpp.Message{says("user", "u"), of("a", "")}, `messages[1].tool_call_id: found "a"`, 1},
		"names in order":      {plain, calls(of("", "f"), of("", "g")), ordered + "[toolof f][toolof g]", -1},
		"names out of order":  {plain, calls(of("", "g"), of("", "f")), `messages[2].name: found "g"`, 2},
		"another name":        {plain, calls(of("a", "f"), of("b", "h")), `messages[3].name: found "h"`, 3},
		"ids are rendered":    {"{% for m in messages %}[{{ m.tool_call_id }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.id ~ c.function|tojson }}{% endfor %}]{% endfor %}", calls(of("b", ""), of("a", "")), `[u][a{"name": "f", "arguments": {}}b{"name": "g", "arguments": {}}][bof b][aof a]`, -1},
		"names are rendered":  {"{% for m in messages %}[{{ m.name }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function|tojson }}{% endfor %}]{% endfor %}", calls(of("b", "g"), of("a", "f")), `[u][{"name": "f", "arguments": {}}{"name": "g", "arguments": {}}][gof bg][fof af]`, -1},
		"calls are looked up": {"{% set all = namespace(c=[]) %}{% for m in messages %}[{% if m.tool_call_id %}{% for c in all.c %}{% if c.id == m.tool_call_id %}{{ c.function.name }}: {% endif %}{% endfor %}{% endif %}{{ m.content or '' }}{% if m.tool_calls %}{% set all.c = m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}]{% endfor %}",
			calls(of("b", ""), of("a", "")), `[u][[{"id": "a", "function": {"name": "f", "arguments": {}}, "type": "function"}, {"id": "b", "function": {"name": "g", "arguments": {}}, "type": "function"}]][g: of b][f: of a]`, -1},
		"a NUL in a name":    {names, []llamacpp.Message{{Role: "user", Content: "u", Name: "a\x00"}}, "messages[0]: found a NUL", -2},
		"llama.cpp's":        {"chatml", []llamacpp.Message{says("system", "s"), says("user", "u")}, "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n", -1},
		"llama.cpp's, calls": {"chatml", []llamacpp.Message{says("user", "u"), call}, "messages[1].tool_calls", 1},
		"llama.cpp's, lost":  {"gemma", []llamacpp.Message{says("user", "It is cold."), says("tool", "cold")}, "", -1},
		"no messages":        {chatml, nil, "messages: found none", -2},
	} {
		text, err := template(t, c.source).Render(llamacpp.Chat{Messages: c.messages})
		var e *llamacpp.MessageError
		switch {
		case c.want == "":
		case c.index == -1:
			if err != nil || text != c.want {
				t.Errorf("%s: found %q, %v, expected %q", name, text, err, c.want)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: found %q, %v, expected the error %q", name, text, err, c.want)
		case errors.As(err, &e) != (c.index >= 0) || e != nil && (e.Index != c.index || e.Role != c.messages[e.Index].Role):
			t.Errorf("%s: found %#v, expected the error of message %d", name, err, c.index)
		}
	}
}

// A template for tools gets them in the order of their fields.
func TestToolsAreRendered(t *testing.T) {
	tools := json.RawMessage(`[{"type":"function","function":{"name":"look","parameters":{"z":1,"a":[2.0]}}}]`)
	source := "{{ messages[0].content }}{% if tools %}{{ tools|tojson }}{% else %}none{% endif %}"
	hello := []llamacpp.Message{says("user", "u")}
	for _, c := range []struct {
		tools json.RawMessage
		want  string
	}{{nil, "unone"}, {tools, `u[{"type": "function", "function": {"name": "look", "parameters": {"z": 1, "a": [2.0]}}}]`}} {
		if text, err := template(t, source).Render(llamacpp.Chat{Messages: hello, Tools: c.tools}); err != nil || text != c.want {
			t.Errorf("found %q, %v, expected %q", text, err, c.want)
		}
	}
	for _, wrong := range []string{`{}`, `7`, `[`} {
		if _, err := template(t, source).Render(llamacpp.Chat{Messages: hello, Tools: json.RawMessage(wrong)}); err == nil || !strings.Contains(err.Error(), "tools: found no list") {
			t.Errorf("%s: found %v", wrong, err)
		}
	}
	if _, err := template(t, "chatml").Render(llamacpp.Chat{Messages: hello, Tools: tools}); err == nil {
		t.Error("found tools in a template of llama.cpp's, expected an error")
	}
}

func TestTemplatesThatRenderNothing(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 64})
	for source, want := range map[string]string{
		"": "found no tokenizer.chat_template", "{% if %}": "line 1: ", "{{ messages[7].content }}": "has no element 7", "no such": "leaves out of the prompt",
		"{{ 'x' * 9999999999 }}": "too much memory",
		"{% include 'x' %}":      "found include", "{{ raise_exception('never') }}": "refuses the chat: never",
	} {
		if _, err := m.Template(source); !errors.Is(err, llamacpp.ErrTemplate) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: found %v, expected ErrTemplate, %q", source, err, want)
		}
	}
	// One that wants a system message is as good.
	if _, err := m.Template("{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}" + chatml); err != nil {
		t.Error(err)
	}
}

// The tokens of a prompt are those of the template's text: what the tokenizer adds is there once.
func TestOneBOS(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 64})
	bos, ok := m.Begins()
	for _, source := range []string{"{{ bos_token }}" + chatml, chatml} {
		tmpl, err := m.Template(source)
		if err != nil {
			t.Fatal(err)
		}
		text, err := tmpl.Render(llamacpp.Chat{Messages: []llamacpp.Message{says("user", "Hello")}})
		if err != nil {
			t.Fatal(err)
		}
		ids := m.Tokens(text, true)
		if ok && (ids[0] != bos || slices.Contains(ids[1:], bos)) {
			t.Errorf("found %v, expected %d once, at the beginning", ids, bos)
		}
	}
}

// The models of the folder REAL: texts are jinja2's of the template in the file, and tokens are those
// of the text.
func TestRealChats(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("REAL"), "*.gguf"))
	if os.Getenv("REAL") == "" || len(files) == 0 {
		t.Skip("REAL names no folder of models")
	}
	if missing != "" || loaded != nil {
		t.Skip(missing, loaded)
	}
	if err := exec.Command("python3", "-c", "import jinja2").Run(); err != nil {
		t.Skipf("found no python3 with jinja2 (pip install jinja2): %v", err)
	}
	chats := map[string]string{
		"user":   `{"messages":[{"role":"user","content":"Hello, who are you?"}]}`,
		"turns":  `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":" Grüße, 日本 <b> \n"},{"role":"assistant","content":"Yes."},{"role":"user","content":"Why?"}]}`,
		"tools":  `{"messages":[{"role":"user","content":"Weather?"}],"tools":[{"type":"function","function":{"name":"look","description":"d <x>","parameters":{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"number"}}}}}]}`,
		"call":   `{"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"abcdef123","type":"function","function":{"name":"look","arguments":{"city":"Bern"}}}]},{"role":"tool","content":"cold","tool_call_id":"abcdef123"}]}`,
		"system": `{"messages":[{"role":"system","content":"One."},{"role":"system","content":"Two."},{"role":"user","content":"Hello"}]}`,
	}
	for _, file := range files {
		m, err := llamacpp.Open(file, llamacpp.Options{Context: 64, Threads: 1})
		if err != nil {
			t.Error(err)
			continue
		}
		source := m.ChatTemplate()
		if source == "" {
			t.Logf("%s: found no chat template", file)
			m.Close()
			continue
		}
		tmpl, err := m.Template("")
		if err != nil {
			t.Error(err)
			m.Close()
			continue
		}
		tokens := tmpl.Tokens()
		asked := map[string]map[string]any{}
		for name, chat := range chats {
			v := map[string]any{"tools": nil, "documents": nil, "add_generation_prompt": true}
			for key, text := range tokens {
				v[key] = text
			}
			if err := json.Unmarshal([]byte(chat), &v); err != nil {
				t.Fatal(err)
			}
			asked[name] = v
		}
		// As text, so that the order of fields is kept.
		var body strings.Builder
		body.WriteString(`{"templates":`)
		raw, _ := json.Marshal(map[string]string{"t": source})
		body.Write(raw)
		body.WriteString(`,"chats":{`)
		first := true
		for name, chat := range chats {
			if !first {
				body.WriteByte(',')
			}
			first = false
			extra, _ := json.Marshal(tokens)
			more := `,"add_generation_prompt":true,"documents":null`
			if !strings.Contains(chat, `"tools":`) {
				more += `,"tools":null`
			}
			body.WriteString(`"` + name + `":` + strings.TrimSuffix(chat, "}") + more + "," + strings.TrimPrefix(string(extra), "{"))
		}
		body.WriteString("}}")
		c := exec.Command("python3", "internal/jinja/testdata/render.py")
		c.Stdin, c.Stderr = strings.NewReader(body.String()), os.Stderr
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]map[string]struct{ Text, Error string }
		if err := json.Unmarshal(out, &want); err != nil {
			t.Fatal(err)
		}
		model, err := llama.ModelLoadFromFile(file, vocabularyOnly())
		if err != nil {
			t.Fatal(err)
		}
		vocab := llama.ModelGetVocab(model)
		for name, chat := range chats {
			var in struct {
				Messages []struct {
					Role       string
					Content    string
					ToolCalls  json.RawMessage `json:"tool_calls"`
					ToolCallID string          `json:"tool_call_id"`
				}
				Tools json.RawMessage
			}
			if err := json.Unmarshal([]byte(chat), &in); err != nil {
				t.Fatal(err)
			}
			x := llamacpp.Chat{Tools: in.Tools}
			for _, m := range in.Messages {
				x.Messages = append(x.Messages, llamacpp.Message{Role: m.Role, Content: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID})
			}
			text, err := tmpl.Render(x)
			w := want["t"][name]
			var lost *llamacpp.MessageError
			if errors.As(err, &lost) { // jinja2 says nothing
				t.Logf("%s, %s: %v", filepath.Base(file), name, err)
				continue
			}
			if (err == nil) != (w.Error == "") || text != w.Text {
				t.Errorf("%s, %s: found %q, %v, expected %q %s", file, name, text, err, w.Text, w.Error)
				continue
			}
			if err != nil {
				continue
			}
			ids := m.Tokens(text, true)
			for i, id := range llama.Tokenize(vocab, w.Text, false, true) {
				if i >= len(ids) || ids[i] != uint32(id) {
					t.Errorf("%s, %s: found the tokens %v, expected those of %q", file, name, ids, w.Text)
					break
				}
			}
		}
		llama.ModelFree(model)
		m.Close()
	}
}

func vocabularyOnly() llama.ModelParams {
	p := llama.ModelDefaultParams()
	p.VocabOnly = 1
	return p
}
