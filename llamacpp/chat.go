package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
	Refusal                 string // of an assistant that did not answer
	Name, ToolCallID        string
}

// calls reports whether the message calls tools.
func (m *Message) calls() bool { return len(m.ToolCalls)+len(m.FunctionCall) > 0 }

// result reports whether the message is the result of a call.
func (m *Message) result() bool { return m.Role == "tool" || m.Role == "function" }

// texts are the parts of the message that the template gets as they are.
func (m *Message) texts() []string {
	return []string{m.Role, m.Content, m.Reasoning, m.Refusal, m.Name, m.ToolCallID}
}

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
	Field string // "content", "name", "refusal", "tool_calls", "function_call" or "tool_call_id"
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
// [Model.Tokens] with special tokens. A message whose content, name, refusal or calls are not in the
// text is a [MessageError]; thoughts of an assistant may be left out. So is the result of a call out
// of the order of the calls, if the template uses neither its id nor its name.
func (t *Template) Render(c Chat) (string, error) {
	if len(c.Messages) == 0 {
		return "", errors.New("llamacpp: messages: found none, expected one at least")
	}
	size, calls, functions := 0, false, false
	for i, m := range c.Messages {
		size += len(m.ToolCalls) + len(m.FunctionCall) + 64
		for _, text := range m.texts() {
			if size += len(text); strings.ContainsRune(text, 0) {
				return "", fmt.Errorf("llamacpp: messages[%d]: found a NUL, expected text without one", i)
			}
		}
		if size > MaxText {
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

// whole returns the error of the first message that is not in the text of a chat. Each content, name
// and refusal gets a mark at its end, and each call one among its arguments, which the text of the
// marked chat has: the words of a message may be in the text of another one. If the template does
// not render the marked chat the words count.
func (t *Template) whole(c Chat, f form, text string) error {
	mark := "7305811946"
	for n := 1; slices.ContainsFunc(c.Messages, func(m Message) bool {
		return strings.Contains(m.Content, mark) || strings.Contains(string(m.ToolCalls)+string(m.FunctionCall), mark)
	}) || strings.Contains(text, mark); n++ {
		mark = strconv.Itoa(7305811946 + 1299709*n)
	}
	marked, err := t.render(c, f, mark)
	has := func(p part, i, j int, of string) bool {
		if err == nil {
			return strings.Contains(marked, marker(mark, p, i, j))
		}
		return strings.Contains(text, of)
	}
	var calls []call // whose results come
	results := 0
	swapped := Chat{Messages: slices.Clone(c.Messages), Tools: c.Tools}
	var unordered error
	for i, m := range c.Messages {
		content := strings.TrimSpace(m.Content)
		if m.Role == "assistant" { // whose thoughts may be left out
			if j := strings.LastIndex(content, "</think>"); j >= 0 {
				content = strings.TrimSpace(content[j+len("</think>"):])
			} else if strings.HasPrefix(content, "<think>") {
				content = ""
			}
		}
		if content != "" && !has(ofContent, i, 0, content) {
			return &MessageError{i, m.Role, "content", fmt.Sprintf("found a message of the role %q that %s leaves out of the prompt", m.Role, t.from)}
		}
		if strings.TrimSpace(m.Refusal) != "" && !has(ofRefusal, i, 0, m.Refusal) {
			return &MessageError{i, m.Role, "refusal", fmt.Sprintf("found one that %s leaves out of the prompt", t.from)}
		}
		if m.result() {
			next := call{}
			if results < len(calls) {
				next = calls[results]
			}
			results++
			for _, of := range []struct {
				field, found, next string
				swapped            *string
			}{{"tool_call_id", m.ToolCallID, next.id, &swapped.Messages[i].ToolCallID}, {"name", m.Name, next.name, &swapped.Messages[i].Name}} {
				if of.found == "" || of.found == of.next {
					continue
				}
				*of.swapped = other(of.found)
				if unordered == nil {
					unordered = &MessageError{i, m.Role, of.field, fmt.Sprintf("found %.80q, which %s leaves out of the prompt, expected %.80q: results in the order of the calls", of.found, t.from, of.next)}
				}
			}
			continue
		}
		if strings.TrimSpace(m.Name) != "" && !has(ofName, i, 0, m.Name) {
			return &MessageError{i, m.Role, "name", fmt.Sprintf("found %.80q, which %s leaves out of the prompt", m.Name, t.from)}
		}
		if calls, results = nil, 0; !m.calls() {
			continue
		}
		field := "tool_calls"
		if len(m.ToolCalls) == 0 {
			field = "function_call"
		}
		var bad error
		if calls, bad = m.functions(i); bad != nil {
			return bad
		}
		for j, call := range calls {
			if !strings.Contains(text, call.name) || !has(ofCall, i, j, call.name) {
				return &MessageError{i, m.Role, field, fmt.Sprintf("found a call that %s leaves out of the prompt", t.from)}
			}
		}
	}
	if unordered == nil {
		return nil
	}
	// The text tells which result is of which call if it changes with the ids and names.
	if again, err := t.render(swapped, f, ""); err == nil && again == text {
		return unordered
	}
	return nil
}

// other returns another text of the same length, of a digit or two where text has others.
func other(text string) string {
	if text[0] == '0' {
		return "1" + text[1:]
	}
	_, size := utf8.DecodeRuneInString(text)
	return strings.Repeat("0", size) + text[size:]
}

// part is a part of a message.
type part byte

const (
	ofContent part = '1' + iota
	ofCall
	ofName
	ofRefusal
)

// marker is the mark of a part of message i, or of its call j. All have one length: none is a part
// of another.
func marker(mark string, p part, i, j int) string { return fmt.Sprintf("%s%c%07d%07d", mark, p, i, j) }

// call is a call of a message.
type call struct {
	id, name string
	function *jinja.Dict
}

// functions returns the calls of a message.
func (m *Message) functions(i int) (list []call, err error) {
	fail := func(field, format string, a ...any) ([]call, error) {
		return nil, &MessageError{i, m.Role, field, fmt.Sprintf(format, a...)}
	}
	read := func(field string, x, id any) error {
		function, ok := x.(*jinja.Dict)
		if !ok {
			_, err := fail(field, "found no object, expected one with a name and arguments")
			return err
		}
		x, _ = function.Get("name")
		name, _ := x.(string)
		if name == "" {
			_, err := fail(field+".name", "found none, expected the name of a function")
			return err
		}
		text, _ := id.(string)
		list = append(list, call{text, name, function})
		return nil
	}
	if len(m.ToolCalls) == 0 {
		x, err := jinja.FromJSON(m.FunctionCall)
		if err != nil {
			return fail("function_call", "%v", err)
		}
		return list, read("function_call", x, nil)
	}
	x, err := jinja.FromJSON(m.ToolCalls)
	items, ok := jinja.Items(x)
	if err != nil {
		return fail("tool_calls", "%v", err)
	}
	if !ok {
		return fail("tool_calls", "found no list, expected a list of calls")
	}
	for j, item := range items {
		field := fmt.Sprintf("tool_calls[%d].function", j)
		call, _ := item.(*jinja.Dict)
		if call == nil {
			return fail(field[:len(field)-len(".function")], "found no object, expected one with a function")
		}
		function, _ := call.Get("function")
		id, _ := call.Get("id")
		if err := read(field, function, id); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// render renders a chat, with marks if mark is not empty.
func (t *Template) render(c Chat, f form, mark string) (string, error) {
	marked := func(text string, p part, i int) string {
		if mark == "" || strings.TrimSpace(text) == "" {
			return valid(text)
		}
		return valid(text) + marker(mark, p, i, 0)
	}
	contents := make([]string, len(c.Messages))
	for i, m := range c.Messages {
		contents[i] = marked(m.Content, ofContent, i)
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
		if m.Refusal != "" {
			d.Set("refusal", marked(m.Refusal, ofRefusal, i))
		}
		switch {
		case m.result() && m.Name != "": // the name of a function
			d.Set("name", valid(m.Name))
		case m.Name != "":
			d.Set("name", marked(m.Name, ofName, i))
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
			if err := arguments(call.function, f.text, mark, i, j); err != nil {
				return "", &MessageError{i, m.Role, fmt.Sprintf("tool_calls[%d].function.arguments", j), err.Error()}
			}
		}
		switch {
		case len(m.ToolCalls) > 0:
			x, _ := jinja.FromJSON(m.ToolCalls)
			items, _ := jinja.Items(x)
			for j, item := range items {
				call := item.(*jinja.Dict)
				call.Set("function", list[j].function)
				if kind, _ := call.Get("type"); kind == nil {
					call.Set("type", "function")
				}
			}
			d.Set("tool_calls", x)
		case f.list:
			d.Set("tool_calls", jinja.NewList([]any{jinja.NewDict("type", "function", "function", list[0].function)}))
		default:
			d.Set("function_call", list[0].function)
		}
	}
	variables := map[string]any{"messages": jinja.NewList(messages), "tools": nil, "documents": nil, "add_generation_prompt": true}
	for name, text := range t.tokens {
		variables[name] = text
	}
	template := t.chat
	if len(c.Tools) > 0 {
		tools, err := jinja.FromJSON(c.Tools)
		if err != nil {
			return "", fmt.Errorf("llamacpp: tools: found no list, expected a list of tools: %w", err)
		}
		if _, ok := jinja.Items(tools); !ok {
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
			return fmt.Errorf("found %.60q, expected a string with a JSON object: %w", text, err)
		}
	}
	if !isObject {
		return fmt.Errorf("found %.60q, expected a JSON object, or a string with one", fmt.Sprint(x))
	}
	m := marker(mark, ofCall, i, j)
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
