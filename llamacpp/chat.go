package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s/llamacpp/internal/jinja"
)

// Message is one message of a chat, with the fields of OpenAI's API.
type Message struct {
	Role    string // "system", "user", "assistant" or "tool", most often
	Content string
	// ToolCalls is a list of calls, and FunctionCall the older form of one. Arguments that are a
	// string of JSON reach the template as the object in it, or as the string, if it needs that.
	ToolCalls, FunctionCall json.RawMessage
	Reasoning               string // the thoughts of an assistant, which most templates leave out
	Name, ToolCallID        string
}

// calls reports whether the message calls tools.
func (m *Message) calls() bool { return len(m.ToolCalls)+len(m.FunctionCall) > 0 }

// Chat is what a [Template] renders.
type Chat struct {
	Messages []Message
	// Tools is a list of tools, as in OpenAI's API; the template gets none if it is empty.
	Tools json.RawMessage
}

// ErrTemplate is the error, by errors.Is, of a model without a chat template, and of a template that
// cannot be read, or cannot render a message of a user.
var ErrTemplate = errors.New("llamacpp: no chat template")

// MessageError is the error of a message that a template leaves out of the prompt.
type MessageError struct {
	Index int    // of the message
	Role  string // of the message
	Field string // "content", "tool_calls" or "function_call"
	What  string // is wrong
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("messages[%d].%s: %s", e.Index, e.Field, e.What)
}

// Template renders chats. It serves all goroutines.
type Template struct {
	from        string // names it in errors
	builtin     string // a name of llama.cpp's, for the others
	chat, tools *jinja.Template
	toolsErr    error
	tokens      map[string]any
}

// ChatTemplate returns the chat template of the file, "" if it has none.
func (m *Model) ChatTemplate() string { return llama.ModelChatTemplate(m.model, "") }

// ChatTemplates returns the names of the templates that llama.cpp has, for [Model.Template].
func ChatTemplates() []string { return llama.ChatBuiltinTemplates() }

// Template returns a template: the file's for "" (with tools its template tool_use, if it has one),
// llama.cpp's for one of [ChatTemplates], and otherwise the one whose text source is, in the
// language of Jinja2. It renders as transformers does, with bos_token, eos_token and other special
// tokens of the file. A template that renders no message of a user is an error.
func (m *Model) Template(source string) (*Template, error) {
	t := &Template{from: "the chat template", tokens: map[string]any{"bos_token": "<s>", "eos_token": "</s>"}}
	if m.vocab != 0 {
		t.tokens = map[string]any{}
		for name, id := range map[string]llama.Token{
			"bos_token": llama.VocabBOS(m.vocab), "eos_token": llama.VocabEOS(m.vocab), "sep_token": llama.VocabSEP(m.vocab),
			"pad_token": llama.VocabPAD(m.vocab), "mask_token": llama.VocabMASK(m.vocab),
		} {
			if id >= 0 {
				t.tokens[name] = m.Name(uint32(id))
			}
		}
	}
	fail := func(err error) error { return fmt.Errorf("%w: %s: %w", ErrTemplate, t.from, err) }
	tools := ""
	switch {
	case source == "":
		t.from = m.path + ": tokenizer.chat_template"
		if source = m.ChatTemplate(); source == "" {
			return nil, fmt.Errorf("%w: %s: found no tokenizer.chat_template, expected one, or another template", ErrTemplate, m.path)
		}
		tools = llama.ModelChatTemplate(m.model, "tool_use")
	case slices.Contains(ChatTemplates(), source):
		t.builtin, t.from = source, "the template "+source+" of llama.cpp"
		return t, nil
	}
	var err error
	if t.chat, err = jinja.Parse(source); err != nil {
		return nil, fail(err)
	}
	if t.tools = t.chat; tools != "" {
		if t.tools, err = jinja.Parse(tools); err != nil {
			t.toolsErr = fmt.Errorf("llamacpp: %s.tool_use: %w", t.from, err)
		}
	}
	user := Message{Role: "user", Content: "Hello"}
	if _, err = t.Render(Chat{Messages: []Message{user}}); err != nil {
		if _, also := t.Render(Chat{Messages: []Message{{Role: "system", Content: "Be brief."}, user}}); also != nil {
			return nil, fail(err)
		}
	}
	return t, nil
}

// Render returns the text of a chat up to the place where the assistant continues, for
// [Model.Tokens] with special tokens. A message whose content or calls are not
// in the text is a [MessageError]; thoughts of an assistant may be left out.
func (t *Template) Render(c Chat) (string, error) {
	if len(c.Messages) == 0 {
		return "", errors.New("llamacpp: messages: found none, expected one at least")
	}
	size, calls, functions := 0, false, false
	for i, m := range c.Messages {
		if strings.ContainsRune(m.Role, 0) || strings.ContainsRune(m.Content, 0) {
			return "", fmt.Errorf("llamacpp: messages[%d]: found a NUL, expected text without one", i)
		}
		if size += len(m.Role) + len(m.Content) + len(m.ToolCalls) + len(m.FunctionCall) + 64; size > MaxText {
			return "", fmt.Errorf("llamacpp: messages[%d]: found a chat above %d bytes, expected at most %[2]d", i, MaxText)
		}
		calls, functions = calls || m.calls(), functions || len(m.FunctionCall) > 0
	}
	if t.toolsErr != nil && len(c.Tools) > 0 {
		return "", t.toolsErr
	}
	// Templates differ in the form of calls: the first form that renders all of the chat is right.
	// Without calls there is one form.
	forms := []form{{}}
	if calls {
		forms = append(forms, form{empty: true}, form{text: true}, form{text: true, empty: true})
	}
	if functions {
		for _, f := range forms {
			f.list = true
			forms = append(forms, f)
		}
	}
	var first error
	for _, f := range forms {
		text, err := t.render(c, f, "")
		if err == nil {
			err = t.whole(c, f, text)
		}
		if err == nil {
			return text, nil
		}
		var missing, before *MessageError
		if first == nil || errors.As(err, &missing) && !errors.As(first, &before) {
			first = err
		}
	}
	return "", first
}

// form is a form of messages with calls.
type form struct {
	text  bool // arguments are a text, not an object
	empty bool // missing content is empty, not null
	list  bool // a function_call becomes a list tool_calls
}

// whole returns the error of the first message that is not in the text of a chat. Each content gets
// a mark at its end, and each call one among its arguments, which the text of the marked chat has:
// the words of a message may be in the text of another one. If the template does not render the
// marked chat the words count.
func (t *Template) whole(c Chat, f form, text string) error {
	mark := "7305811946"
	for n := 1; slices.ContainsFunc(c.Messages, func(m Message) bool {
		return strings.Contains(m.Content, mark) || strings.Contains(string(m.ToolCalls)+string(m.FunctionCall), mark)
	}) || strings.Contains(text, mark); n++ {
		mark = strconv.Itoa(7305811946 + 1299709*n)
	}
	marked, err := t.render(c, f, mark)
	has := func(i int, of string, part string) bool {
		if err == nil {
			return strings.Contains(marked, marker(mark, i, part))
		}
		return strings.Contains(text, of)
	}
	for i, m := range c.Messages {
		content := strings.TrimSpace(m.Content)
		if m.Role == "assistant" { // whose thoughts may be left out
			if j := strings.LastIndex(content, "</think>"); j >= 0 {
				content = strings.TrimSpace(content[j+len("</think>"):])
			} else if strings.HasPrefix(content, "<think>") {
				content = ""
			}
		}
		if content != "" && !has(i, content, "") {
			return &MessageError{i, m.Role, "content", fmt.Sprintf("found a message of the role %q that %s leaves out of the prompt", m.Role, t.from)}
		}
		if !m.calls() {
			continue
		}
		field := "tool_calls"
		if len(m.ToolCalls) == 0 {
			field = "function_call"
		}
		list, bad := m.functions(i)
		if bad != nil {
			return bad
		}
		for j, call := range list {
			name, _ := call.Get("name")
			if text_, ok := name.(string); !ok || !strings.Contains(text, text_) || !has(i, text_, "1"+strconv.Itoa(j)) {
				return &MessageError{i, m.Role, field, fmt.Sprintf("found a call that %s leaves out of the prompt", t.from)}
			}
		}
	}
	return nil
}

// marker is the mark of a part of a message.
func marker(mark string, i int, part string) string { return fmt.Sprintf("%s%06d%s0", mark, i, part) }

// functions returns the functions that a message calls.
func (m *Message) functions(i int) (list []*jinja.Dict, err error) {
	fail := func(field, format string, a ...any) ([]*jinja.Dict, error) {
		return nil, &MessageError{i, m.Role, field, fmt.Sprintf(format, a...)}
	}
	read := func(field string, x any) error {
		call, ok := x.(*jinja.Dict)
		if !ok {
			_, err := fail(field, "found no object, expected one with a name and arguments")
			return err
		}
		if name, _ := call.Get("name"); name == nil || name == "" {
			_, err := fail(field+".name", "found none, expected the name of a function")
			return err
		}
		list = append(list, call)
		return nil
	}
	if len(m.ToolCalls) == 0 {
		x, err := jinja.FromJSON(m.FunctionCall)
		if err != nil {
			return fail("function_call", "%v", err)
		}
		return list, read("function_call", x)
	}
	x, err := jinja.FromJSON(m.ToolCalls)
	items, ok := jinja.Items(x)
	if err != nil || !ok {
		return fail("tool_calls", "found no list, expected a list of calls")
	}
	for j, item := range items {
		field := fmt.Sprintf("tool_calls[%d].function", j)
		call, _ := item.(*jinja.Dict)
		if call == nil {
			return fail(field[:len(field)-len(".function")], "found no object, expected one with a function")
		}
		function, _ := call.Get("function")
		if err := read(field, function); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// render renders a chat, with marks if mark is not empty.
func (t *Template) render(c Chat, f form, mark string) (string, error) {
	contents := make([]string, len(c.Messages))
	for i, m := range c.Messages {
		if contents[i] = valid(m.Content); mark != "" && strings.TrimSpace(m.Content) != "" {
			contents[i] += marker(mark, i, "")
		}
	}
	if t.builtin != "" {
		return t.llama(c, contents)
	}
	messages := make([]any, len(c.Messages))
	for i, m := range c.Messages {
		d := jinja.NewDict("role", valid(m.Role))
		messages[i] = d
		if m.Reasoning != "" { // under the names that templates know
			d.Set("thinking", valid(m.Reasoning))
			d.Set("reasoning_content", valid(m.Reasoning))
		}
		if d.Set("content", contents[i]); contents[i] == "" && m.calls() && !f.empty {
			d.Set("content", nil)
		}
		if m.Name != "" {
			d.Set("name", valid(m.Name))
		}
		if m.ToolCallID != "" {
			d.Set("tool_call_id", valid(m.ToolCallID))
		}
		if !m.calls() {
			continue
		}
		list, err := m.functions(i)
		if err != nil {
			return "", err
		}
		for j, call := range list {
			if err := arguments(call, f.text, mark, i, j); err != nil {
				return "", &MessageError{i, m.Role, fmt.Sprintf("tool_calls[%d].function.arguments", j), err.Error()}
			}
		}
		switch {
		case len(m.ToolCalls) > 0:
			x, _ := jinja.FromJSON(m.ToolCalls)
			items, _ := jinja.Items(x)
			for j, item := range items {
				call := item.(*jinja.Dict)
				call.Set("function", list[j])
				if kind, _ := call.Get("type"); kind == nil {
					call.Set("type", "function")
				}
			}
			d.Set("tool_calls", x)
		case f.list:
			d.Set("tool_calls", jinja.NewList([]any{jinja.NewDict("type", "function", "function", list[0])}))
		default:
			d.Set("function_call", list[0])
		}
	}
	variables := map[string]any{"messages": jinja.NewList(messages), "tools": nil, "documents": nil, "add_generation_prompt": true}
	for name, text := range t.tokens {
		variables[name] = text
	}
	template := t.chat
	if len(c.Tools) > 0 {
		tools, err := jinja.FromJSON(c.Tools)
		if _, ok := jinja.Items(tools); err != nil || !ok {
			return "", errors.New("llamacpp: tools: found no list, expected a list of tools")
		}
		variables["tools"], template = tools, t.tools
	}
	text, err := template.Render(variables, jinja.Options{})
	var e *jinja.Error
	if errors.As(err, &e) && e.Raised {
		return "", fmt.Errorf("llamacpp: %s refuses the chat: %s", t.from, e.Text)
	} else if err != nil {
		return "", fmt.Errorf("llamacpp: %s does not render the chat: %w", t.from, err)
	}
	return text, nil
}

// arguments sets the form of the arguments of a call, and marks them.
func arguments(call *jinja.Dict, asText bool, mark string, i, j int) error {
	x, _ := call.Get("arguments")
	text, isText := x.(string)
	object, isObject := x.(*jinja.Dict)
	if x == nil || isText && strings.TrimSpace(text) == "" {
		text, isText = "{}", true
	}
	if isText {
		value, err := jinja.FromJSON([]byte(text))
		if object, isObject = value.(*jinja.Dict); err != nil {
			isObject = false
		}
	}
	if !isObject {
		return fmt.Errorf("found %.60q, expected a JSON object, or a string with one", fmt.Sprint(x))
	}
	m := marker(mark, i, "1"+strconv.Itoa(j))
	if mark != "" {
		object.Set(m, m)
	}
	if !asText {
		call.Set("arguments", object)
		return nil
	}
	switch {
	case !isText:
		text = jinja.JSON(object)
	case mark != "":
		text += m
	}
	call.Set("arguments", text)
	return nil
}

// llama renders by llama.cpp's own code, which knows roles and contents.
func (t *Template) llama(c Chat, contents []string) (string, error) {
	size := len(t.builtin)
	chat := make([]llama.ChatMessage, len(contents))
	for i, content := range contents {
		role := valid(c.Messages[i].Role)
		size += len(role) + len(content) + 64
		chat[i] = llama.NewChatMessage(role, content)
	}
	if len(c.Tools) > 0 {
		return "", fmt.Errorf("llamacpp: tools: found some, which %s does not know", t.from)
	}
	for range 2 {
		buf := make([]byte, size)
		n := int(llama.ChatApplyTemplate(t.builtin, chat, true, buf))
		runtime.KeepAlive(chat)
		switch {
		case n < 0:
			return "", fmt.Errorf("llamacpp: %s does not render the chat", t.from)
		case n <= len(buf):
			return string(buf[:n]), nil
		}
		size = n
	}
	return "", errors.New("llamacpp: found a chat whose length llama.cpp does not know")
}

// Tokens returns the texts of special tokens that the template gets, by their names in it.
func (t *Template) Tokens() map[string]string {
	all := map[string]string{}
	for name, text := range t.tokens {
		all[name] = text.(string)
	}
	return all
}
