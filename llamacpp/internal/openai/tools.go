package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/gbnf"
)

const (
	mostTools    = 128
	mostToolName = 64 // bytes
	mostCalls    = 32 // of one answer
	called       = engine.Reason("tool_calls")
)

// Calls of tools in the text of a model, in the form of Hermes and Qwen: each a JSON object with name
// and arguments between the two.
const (
	callOpens  = "<tool_call>"
	callCloses = "</tool_call>"
)

// rendersTools reports whether a template renders tools, and calls in the form above.
func rendersTools(t *llamacpp.Template) bool {
	if t == nil {
		return false
	}
	text, err := t.Render(llamacpp.Chat{
		Messages: []llamacpp.Message{
			{Role: "user", Content: "Hello"},
			{Role: "assistant", ToolCalls: json.RawMessage(`[{"id":"call_1","type":"function","function":{"name":"probe_call","arguments":{"a":"b"}}}]`)},
			{Role: "tool", Content: "c", ToolCallID: "call_1"},
		},
		Tools: json.RawMessage(`[{"type":"function","function":{"name":"probe_tool","description":"d","parameters":{"type":"object","properties":{}}}}]`),
	})
	if err != nil || !strings.Contains(text, "probe_tool") {
		return false
	}
	for _, part := range strings.Split(text, callOpens)[1:] {
		body, _, closed := strings.Cut(part, callCloses)
		if name, _, ok := wholeCall(body); closed && ok && name == "probe_call" {
			return true
		}
	}
	return false
}

// tools are the tools of a request.
type tools struct {
	raw  json.RawMessage
	list []tool
}

type tool struct {
	name       string
	parameters json.RawMessage
	strict     bool
}

// readTools reads the tools of a chat, nil if there are none, or none may be called; and whether one
// must be.
func (f *fields) readTools() (t *tools, must bool) {
	raw := f.of["tools"]
	choice := bytes.TrimSpace(f.of["tool_choice"])
	name := ""
	switch text := string(choice); {
	case text == "" || text == "null" || text == `"auto"` || text == `"none"`:
	case text == `"required"`:
		must = true
	case choice[0] == '{':
		c := f.object("tool_choice")
		var kind string
		c.get("type", "a string", &kind)
		if of := c.object("function"); of != nil && kind == "function" {
			of.get("name", "a string", &name)
		}
		must = true
	}
	if must && name == "" && string(choice) != `"required"` || !must && len(choice) > 0 && choice[0] != '"' && string(choice) != "null" ||
		!must && len(choice) > 0 && choice[0] == '"' && string(choice) != `"auto"` && string(choice) != `"none"` {
		f.fail("tool_choice", `found %s, expected "auto", "none", "required", or {"type":"function","function":{"name":NAME}}`, short(choice))
		return nil, false
	}
	if !f.has("tools") {
		if must {
			f.fail("tool_choice", "found %s without tools, expected some", short(choice))
		}
		return nil, false
	}
	t = &tools{raw: raw}
	f.list("tools", "a list of tools", func(v jsonscan.Value) error {
		at := fmt.Sprintf("tools[%d]", len(t.list))
		if len(t.list) == mostTools {
			f.fail("tools", "found more than %d, expected at most these", mostTools)
			return f.failed
		}
		x, failed := readTool(at, json.RawMessage(v))
		if failed == nil && slices.ContainsFunc(t.list, func(y tool) bool { return y.name == x.name }) {
			failed = wrong(at+".function.name", "found %q twice, expected each once", x.name)
		}
		if failed != nil {
			f.failed = failed
			return failed
		}
		t.list = append(t.list, x)
		return nil
	})
	if f.failed != nil {
		return nil, false
	}
	if name != "" {
		at := slices.IndexFunc(t.list, func(x tool) bool { return x.name == name })
		if at < 0 {
			f.fail("tool_choice", "found %.80q, expected the name of one of the tools", name)
			return nil, false
		}
		t.list = t.list[at : at+1]
	}
	if string(choice) == `"none"` {
		return nil, false
	}
	return t, must
}

func readTool(at string, raw json.RawMessage) (x tool, failed *failure) {
	o, failed := parse(raw)
	if failed != nil {
		return x, wrong(at, "found %s, expected an object with type and function", short(raw))
	}
	kind := ""
	if o.get("type", "a string", &kind); kind != "function" {
		return x, wrong(at+".type", "found %.40q, expected \"function\"", kind)
	}
	of := o.object("function")
	if of == nil {
		return x, wrong(at+".function", "found %s, expected an object with a name", short(o.of["function"]))
	}
	of.get("name", "a string", &x.name)
	of.get("strict", "true or false", &x.strict)
	if of.failed != nil {
		return x, wrong(at+".function", "%s", of.failed.Message)
	}
	if x.name == "" || len(x.name) > mostToolName || strings.ContainsFunc(x.name, func(c rune) bool { return c <= ' ' || c == 0x7f || c == 0xfffd }) {
		return x, wrong(at+".function.name", "found %.80q, expected a name of 1 to %d bytes, without spaces", x.name, mostToolName)
	}
	if x.parameters = bytes.TrimSpace(of.of["parameters"]); string(x.parameters) == "null" {
		x.parameters = nil
	}
	if len(x.parameters) > 0 && x.parameters[0] != '{' {
		return x, wrong(at+".function.parameters", "found %s, expected a schema, which is an object", short(x.parameters))
	}
	return x, nil
}

// rule adds the rules of calls from the end of callOpens on, and returns the name of the first.
func (t *tools) rule(g *gbnf.Grammar, parallel bool) (string, *failure) {
	ws := g.Part("ws")
	var any []string
	for i, x := range t.list {
		arguments := `"{" ` + ws + ` "}"`
		if x.parameters != nil {
			// What OpenAI's API does not check either need not be known: any object.
			if _, err := gbnf.New().Schema(x.parameters); err == nil {
				arguments, _ = g.Schema(x.parameters)
			} else if !x.strict {
				arguments = g.Part("object")
			} else {
				return "", badSchema(fmt.Sprintf("tools[%d].function.parameters", i), err)
			}
		}
		any = append(any, strings.Join([]string{`"{"`, ws, `"\"name\":"`, ws, gbnf.Literal(gbnf.Quote(x.name) + ","), ws, `"\"arguments\":"`, ws, arguments}, " "))
	}
	g.Rule("call", "("+strings.Join(any, " | ")+`) ws "}"`)
	g.Rule("calls", ws+" call "+ws+" "+gbnf.Literal(callCloses)+more(ws, parallel))
	return "calls", nil
}

func more(ws string, parallel bool) string {
	if !parallel {
		return ""
	}
	return fmt.Sprintf(` (%[1]s %[2]s %[1]s call %[1]s %[3]s){0,%[4]d}`, ws, gbnf.Literal(callOpens), gbnf.Literal(callCloses), mostCalls-1)
}

// badSchema is the failure of a schema.
func badSchema(param string, err error) *failure {
	var e *gbnf.SchemaError
	if errors.As(err, &e) {
		return wrong(param, "%s: %s", e.Path, e.What).code("invalid_schema")
	}
	return wrong(param, "%v", err).code("invalid_schema")
}

// describe returns a chat for a template that renders no tools: a system message has them, calls are
// texts of the assistant, and their results are texts of the user. Without tools, since none may be
// called any more, earlier calls and results are texts all the same.
func (t *tools) describe(messages []llamacpp.Message) ([]llamacpp.Message, *failure) {
	if t == nil {
		return history(nil, "", messages)
	}
	var b strings.Builder
	b.WriteString("You may call functions. These are their signatures:\n<tools>\n")
	if err := jsonscan.Value(bytes.TrimSpace(t.raw)).Array(func(v jsonscan.Value) error {
		var line bytes.Buffer
		err := json.Compact(&line, v)
		b.Write(line.Bytes())
		b.WriteByte('\n')
		return err
	}); err != nil {
		return nil, wrong("tools", "%v", err)
	}
	b.WriteString("</tools>\nTo call one, answer with its name and its arguments:\n" + callOpens + "\n{\"name\": \"NAME\", \"arguments\": {...}}\n" + callCloses)
	text := b.String()
	return history([]llamacpp.Message{{Role: "system", Content: text}}, text, messages)
}

// history appends messages to a list, with calls and their results as texts. The first system message
// goes before the text, if there is one.
func history(list []llamacpp.Message, text string, messages []llamacpp.Message) ([]llamacpp.Message, *failure) {
	results := false
	for i, m := range messages {
		switch {
		case i == 0 && m.Role == "system" && text != "":
			list[0].Content = m.Content + "\n\n" + text
			continue
		case m.Role == "tool" || m.Role == "function":
			result := "<tool_response>\n" + m.Content + "\n</tool_response>"
			if last := &list[len(list)-1]; results {
				last.Content += "\n" + result
			} else {
				list = append(list, llamacpp.Message{Role: "user", Content: result})
			}
			results = true
			continue
		case len(m.ToolCalls) > 0:
			calls, failed := callsText(m.ToolCalls)
			if failed != nil {
				return nil, wrong(fmt.Sprintf("messages[%d].tool_calls", i), "%s", failed.Message)
			}
			m = llamacpp.Message{Role: m.Role, Content: strings.TrimPrefix(strings.TrimSpace(m.Content)+"\n"+calls, "\n")}
		}
		list, results = append(list, m), false
	}
	return list, nil
}

// callsText is the text of calls of an assistant.
func callsText(raw json.RawMessage) (string, *failure) {
	var calls []struct {
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &calls); err != nil {
		return "", wrong("", "found %s, expected a list of calls", short(raw))
	}
	var all []string
	for _, c := range calls {
		arguments := bytes.TrimSpace(c.Function.Arguments)
		var text string
		if len(arguments) > 0 && arguments[0] == '"' && json.Unmarshal(arguments, &text) == nil {
			arguments = []byte(strings.TrimSpace(text))
		}
		if len(arguments) == 0 || string(arguments) == "null" {
			arguments = []byte("{}")
		}
		if !json.Valid(arguments) || c.Function.Name == "" {
			return "", wrong("", "found a call of %.40q with the arguments %s, expected a name, and an object", c.Function.Name, short(arguments))
		}
		all = append(all, callOpens+"\n{\"name\": "+gbnf.Quote(c.Function.Name)+", \"arguments\": "+string(arguments)+"}\n"+callCloses)
	}
	return strings.Join(all, "\n"), nil
}

// structure reads the form that an answer must have: grammar, response_format and tools.
func (s *Server) structure(f *fields, a *asked) *failure {
	var t *tools
	must := false
	if a.chat {
		t, must = f.readTools()
	}
	schema, isObject := f.format()
	text := ""
	f.get("grammar", "a string", &text)
	parallel := true
	f.get("parallel_tool_calls", "true or false", &parallel)
	if f.failed != nil {
		return f.failed
	}
	a.tools = t
	if isObject && schema != nil || text != "" && (t != nil || isObject || schema != nil) {
		return wrong("grammar", "found it next to tools or a response_format, expected one form of the answer")
	}
	var g *gbnf.Grammar
	trigger, param := "", "grammar"
	if isObject || schema != nil || t != nil {
		g, param = gbnf.New(), "response_format"
		var any []string
		if schema != nil {
			rule, err := g.Schema(schema)
			if err != nil {
				return badSchema("response_format.json_schema.schema", err)
			}
			any = append(any, rule)
		} else if isObject {
			any = append(any, g.Part("object"))
		}
		if t != nil {
			param = "tools"
			rule, failed := t.rule(g, parallel)
			switch {
			case failed != nil:
				return failed
			case must: // nothing else
				any = []string{gbnf.Literal(callOpens) + " " + rule}
			case len(any) == 0: // text, until a call opens
				trigger, any = callOpens, []string{rule}
			default:
				any = append(any, gbnf.Literal(callOpens)+" "+rule)
			}
		}
		g.Rule("root", strings.Join(any, " | "))
		text = g.String()
	}
	if text == "" {
		return nil
	}
	if !a.Ends {
		return wrong("ignore_eos", "found true, expected false: the text ends where its form does")
	}
	grammar, err := s.Vocabulary().Grammar(text, trigger)
	if err != nil {
		return wrong(param, "%v", err)
	}
	a.Grammar, a.grammar, a.form = grammar, len(text), param
	return nil
}

// format reads response_format: the schema of JSON, or an object of any.
func (f *fields) format() (schema json.RawMessage, object bool) {
	o := f.object("response_format")
	if o == nil {
		return nil, false
	}
	var kind string
	o.get("type", "a string", &kind)
	at := o
	switch kind {
	case "", "text":
	case "json_object":
		if schema = o.of["schema"]; schema == nil { // which llama-server knows
			object = true
		}
	case "json_schema":
		if at = o.object("json_schema"); at == nil || at.of["schema"] == nil {
			f.fail("response_format", "json_schema: found none, expected an object with a name and a schema")
			return nil, false
		}
		at.boolean("strict")
		schema = at.of["schema"]
	default:
		f.fail("response_format", "found the type %.40q, expected \"text\", \"json_object\" or \"json_schema\"", kind)
	}
	for _, of := range []*fields{o, at} {
		if of.failed != nil {
			f.fail("response_format", "%s", of.failed.Message)
		}
	}
	return schema, object
}

// callDelta is a part of an answer with calls: content, or a part of a call, the first of which has
// an id and a name.
type callDelta struct {
	content         string
	call            bool
	index           int
	id, name, parts string
}

// callReader finds the calls in the text of an answer as it comes. An answer that begins with the
// object of a call, of one of the tools, is that call too: small models forget what is around it.
type callReader struct {
	names []string // of the tools
	held  string   // text that is not given away
	begun bool     // content was given away
	calls int      // that were found
	in    bool     // held is of a call
	bare  bool     // without callOpens
	after bool     // such a call has ended: spaces and a fence may follow

	at       int // of held, that is scanned
	depth    int
	text     bool // in a string
	escape   bool
	ends     int // of the object of the call, 0 if it has not ended
	named    bool
	from     int // of the arguments
	argEnds  int // 0 if they have not ended
	given    int // bytes of held, of the arguments
	hopeless bool
}

// header is the beginning of a call whose arguments can be given away as they come.
var header = regexp.MustCompile(`^\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"arguments"\s*:\s*\{`)

const (
	mostHeader = 1024 // bytes
	fence      = "```"
)

// add returns what a further text decides.
func (c *callReader) add(text string) (list []callDelta) {
	c.held += text
	for {
		if c.after {
			if c.held = strings.TrimLeft(c.held, " \t\r\n"); len(c.held) < len(fence) && strings.HasPrefix(fence, c.held) {
				return list
			}
			c.held, c.after = strings.TrimPrefix(c.held, fence), false
		}
		if !c.in {
			if wait := c.begins(); wait {
				return list
			}
		}
		if !c.in {
			content, rest, found := strings.Cut(c.held, callOpens)
			if !found {
				keep := len(c.held)
				for n := min(len(callOpens)-1, len(c.held)); n > 0; n-- {
					if strings.HasSuffix(c.held, callOpens[:n]) {
						keep -= n
						break
					}
				}
				// Spaces before a call are none of the content.
				keep = len(strings.TrimRight(c.held[:keep], " \t\r\n"))
				return c.content(list, keep)
			}
			list = c.content(list, len(strings.TrimRight(content, " \t\r\n")))
			*c = callReader{names: c.names, begun: c.begun, held: rest, calls: c.calls, in: true}
		}
		c.scan()
		list = c.stream(list)
		body, rest, closed := c.body()
		if !closed {
			return list
		}
		list = c.whole(list, body, callCloses)
		*c = callReader{names: c.names, begun: c.begun, held: rest, calls: c.calls, after: c.bare}
	}
}

// bareCall is the beginning of an answer that is a call.
var bareCall = regexp.MustCompile(`^\s*(?:\x60{3}(?:json)?\s*)?(\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:)`)

// begins looks for a call at the beginning of the answer, or after another such one, and reports
// whether more of the text must come.
func (c *callReader) begins() (wait bool) {
	if c.begun {
		return false
	}
	text := strings.TrimLeft(c.held, " \t\r\n")
	if m := bareCall.FindStringSubmatchIndex(c.held); m != nil {
		var name string
		if json.Unmarshal([]byte(c.held[m[4]:m[5]]), &name) == nil && slices.Contains(c.names, name) {
			*c = callReader{names: c.names, held: c.held[m[2]:], calls: c.calls, in: true, bare: true}
		}
		return false
	}
	const most = 2*mostToolName + 64
	return len(text) < most && (text == "" || strings.HasPrefix(text, "{") || strings.HasPrefix("```json", text) || strings.HasPrefix(text, "```"))
}

// end returns what the end of the text decides.
func (c *callReader) end() (list []callDelta) {
	if c.in {
		return c.whole(nil, c.held, "")
	}
	if name, arguments, ok := wholeCall(c.held); ok && !c.begun && slices.Contains(c.names, name) {
		first := c.first(name)
		first.parts = arguments
		c.calls++
		return []callDelta{first}
	}
	if c.calls > 0 && strings.TrimSpace(c.held) == "" {
		return nil
	}
	return c.content(nil, len(c.held))
}

// content gives the first n bytes away.
func (c *callReader) content(list []callDelta, n int) []callDelta {
	if n > 0 {
		list = append(list, callDelta{content: c.held[:n]})
		c.held, c.begun = c.held[n:], true
	}
	return list
}

// scan follows the JSON of a call: to the end of the object, if it begins with one.
func (c *callReader) scan() {
	if text := strings.TrimLeft(c.held, " \t\r\n"); text != "" && text[0] != '{' {
		return
	}
	if !c.named && !c.hopeless {
		if m := header.FindStringSubmatchIndex(c.held); m != nil {
			c.named, c.from, c.given = true, m[1]-1, m[1]-1
		} else {
			c.hopeless = len(c.held) > mostHeader
		}
	}
	for ; c.at < len(c.held) && c.ends == 0; c.at++ {
		switch x := c.held[c.at]; {
		case c.escape:
			c.escape = false
		case c.text:
			c.escape, c.text = x == '\\', x != '"'
		case x == '"':
			c.text = true
		case x == '{' || x == '[':
			c.depth++
		case x == '}' || x == ']':
			if c.depth--; c.depth <= 0 {
				c.ends = c.at + 1
			}
		}
		if c.named && c.argEnds == 0 && c.at > c.from && c.depth == 1 {
			c.argEnds = c.at + 1
		}
	}
}

// body cuts a call that is closed off the text: after its JSON, or where it is none.
func (c *callReader) body() (body, rest string, closed bool) {
	from := c.ends
	if begun := strings.TrimLeft(c.held, " \t\r\n"); from == 0 && begun != "" && begun[0] == '{' {
		return "", "", false // in the middle of it
	}
	if c.bare {
		return c.held[:from], c.held[from:], from > 0
	}
	at := strings.Index(c.held[from:], callCloses)
	if at < 0 {
		return "", "", false
	}
	return c.held[:from+at], c.held[from+at+len(callCloses):], true
}

// stream gives the arguments away that have come.
func (c *callReader) stream(list []callDelta) []callDelta {
	if !c.named {
		return list
	}
	if c.from == c.given {
		var name string
		m := header.FindStringSubmatch(c.held)
		if json.Unmarshal([]byte(m[1]), &name) != nil {
			c.named, c.hopeless = false, true
			return list
		}
		list = append(list, c.first(name))
	}
	end := c.at
	if c.argEnds > 0 {
		end = c.argEnds
	}
	if end > c.given {
		list = append(list, callDelta{call: true, index: c.calls, parts: c.held[c.given:end]})
		c.given = end
	}
	return list
}

func (c *callReader) first(name string) callDelta {
	return callDelta{call: true, index: c.calls, id: "call_" + rand.Text()[:24], name: name}
}

// whole gives a call away that has ended: what was not given of it, or its text if it is no call.
func (c *callReader) whole(list []callDelta, body, closes string) []callDelta {
	if !c.named {
		name, arguments, ok := wholeCall(body)
		if !ok {
			if c.begun = true; c.bare {
				return append(list, callDelta{content: body})
			}
			return append(list, callDelta{content: callOpens + body + closes})
		}
		first := c.first(name)
		first.parts = arguments
		list = append(list, first)
	}
	c.calls++
	return list
}

// wholeCall reads a call, whose fields may be in any order.
func wholeCall(body string) (name, arguments string, ok bool) {
	f, failed := parse([]byte(strings.TrimSpace(body)))
	if failed != nil {
		return "", "", false
	}
	f.get("name", "a string", &name)
	raw := bytes.TrimSpace(f.of["arguments"])
	if raw == nil {
		raw = bytes.TrimSpace(f.of["parameters"])
	}
	if len(raw) > 0 && raw[0] == '"' { // as a text
		var text string
		if json.Unmarshal(raw, &text) == nil {
			raw = bytes.TrimSpace([]byte(text))
		}
	}
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	return name, string(raw), f.failed == nil && name != "" && raw[0] == '{' && json.Valid(raw)
}

// reader returns a reader of calls.
func (t *tools) reader() *callReader {
	c := &callReader{}
	for _, x := range t.list {
		c.names = append(c.names, x.name)
	}
	return c
}

// message returns the message of a whole answer, and whether it calls tools.
func (t *tools) message(text string) (message object, called bool) {
	c := t.reader()
	content := ""
	var calls []object
	for _, d := range append(c.add(text), c.end()...) {
		switch {
		case !d.call:
			content += d.content
		case d.id != "":
			calls = append(calls, object{"id": d.id, "type": "function", "function": object{"name": d.name, "arguments": d.parts}})
		default:
			f := calls[d.index]["function"].(object)
			f["arguments"] = f["arguments"].(string) + d.parts
		}
	}
	message = object{"role": "assistant", "content": content, "refusal": nil}
	if len(calls) > 0 {
		if message["tool_calls"] = calls; content == "" {
			message["content"] = nil
		}
	}
	return message, len(calls) > 0
}

// write adds the events of a part of the text; all is true for the last one.
func (v *view) write(e *events, p piece, all bool) {
	if v.asked.tools == nil {
		if !all {
			v.chunk(e, p, "", false)
		}
		return
	}
	if v.calls == nil {
		v.calls = v.asked.tools.reader()
	}
	v.tokens = append(v.tokens, p.tokens...)
	list := v.calls.add(p.text)
	if all {
		list = append(list, v.calls.end()...)
	}
	if len(list) == 0 && all && v.asked.LogProbs >= 0 && len(v.tokens) > 0 {
		list = append(list, callDelta{}) // for the log-probabilities of what is held back
	}
	for _, d := range list {
		v.delta = &d
		v.chunk(e, piece{tokens: v.tokens}, "", false)
		v.delta, v.tokens = nil, nil
	}
}

// reason is the reason of the end, after the last part of the text.
func (v *view) reason(r engine.Reason) engine.Reason {
	if v.calls != nil && v.calls.calls > 0 && r == engine.Stopped {
		return called
	}
	return r
}

// object is the field delta of an event.
func (d *callDelta) object() object {
	if !d.call {
		return object{"content": d.content}
	}
	function := object{"arguments": d.parts}
	call := object{"index": d.index, "function": function}
	if d.id != "" {
		call["id"], call["type"], function["name"] = d.id, "function", d.name
	}
	return object{"tool_calls": []any{call}}
}
