package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/sample"
)

const (
	mostStops    = 16
	mostStopping = 1024 // bytes of a stop text
	mostTop      = 20   // top_logprobs
	mostNamed    = 128  // logprob_token_ids, as in vLLM
	mostAnswers  = 256  // of a score
	mostBias     = 100
	mostMessages = 100_000
)

// asked is a request for text.
type asked struct {
	engine.Request
	chat          bool
	stream, usage bool
	byID          bool // tokens of log-probabilities are shown by their ids
	choices       int
	tools         *tools // that may be called, nil if there are none
	grammar       int    // bytes
	form          string // the field of the grammar
}

// ask reads a request for text.
func (s *Server) ask(ctx context.Context, f *fields, chat bool) (*asked, *failure) {
	a := &asked{chat: chat}
	a.Ends, a.LogProbs = !f.boolean("ignore_eos"), -1
	most := int64(16) // of /v1/completions, as OpenAI has it
	if chat {
		most = math.MaxInt32
	}
	most = f.integer("max_tokens", most, 1, math.MaxInt32)
	a.Most = int(f.integer("max_completion_tokens", most, 1, math.MaxInt32))
	a.stream = f.boolean("stream")
	if o := f.object("stream_options"); o != nil {
		a.usage = o.boolean("include_usage")
		f.failed = cmp.Or(f.failed, o.failed)
	}
	s.sampling(f, &a.Sampling)
	a.choices = s.choices(f)
	a.Stop = f.texts("stop", "a string, or a list of strings", mostStops)
	for i, text := range a.Stop {
		if text == "" || len(text) > mostStopping {
			f.fail("stop", "string %d has %d bytes, expected 1 to %d", i, len(text), mostStopping)
		}
	}
	if chat {
		top := int(f.integer("top_logprobs", 0, 0, mostTop))
		if f.boolean("logprobs") {
			a.LogProbs = top
		} else if top > 0 {
			f.fail("top_logprobs", "found %d without logprobs, expected logprobs to be true", top)
		}
	} else {
		a.LogProbs = int(f.integer("logprobs", -1, 0, mostTop))
	}
	s.named(f, a)
	f.unbuilt(chat)
	f.known(slices.Concat(anywhere, written, []string{"prompt", "messages"}), s.o.Strict)
	if f.failed != nil {
		return nil, f.failed
	}
	failed := s.structure(f, a)
	if failed != nil {
		return nil, failed
	}
	if chat {
		a.Prompt, failed = s.messages(ctx, f, a.tools)
	} else {
		a.Prompt, failed = s.prompt(ctx, f)
	}
	return a, failed
}

// unbuilt refuses what no path does, and tools, which only a chat has.
func (f *fields) unbuilt(chat bool) {
	for _, name := range []string{"tool_choice", "function_call"} {
		if text := string(bytes.TrimSpace(f.of[name])); f.has(name) && text != `"auto"` && text != `"none"` && !(chat && name == "tool_choice") {
			f.fail(name, "found %s, expected \"auto\" or \"none\": tools of a chat are called, by tools and tool_choice", short(f.of[name]))
		}
	}
	if !chat && f.has("tools") {
		f.fail("tools", "found %s, expected none: only a chat calls tools", short(f.of["tools"]))
	}
	for _, kind := range f.texts("modalities", "a list of strings", mostStops) {
		if kind != "text" {
			f.fail("modalities", "found %.40q, expected \"text\"", kind)
		}
	}
	for _, name := range []string{"functions", "suffix", "echo", "audio"} {
		if f.has(name) {
			f.fail(name, "found %s, expected none: this server does not do that", short(f.of[name]))
		}
	}
}

// anywhere are fields of all requests: those that all paths read, and those of OpenAI's API on which no
// text of this server depends.
var anywhere = []string{"deterministic", "cache_prompt", "n", "best_of", "response_format", "tools", "functions", "suffix", "echo", "audio",
	"tool_choice", "function_call", "modalities", "model", "user", "metadata", "store", "service_tier", "safety_identifier",
	"prompt_cache_key", "prompt_cache_retention", "prediction", "parallel_tool_calls", "reasoning_effort", "verbosity"}

// sampling reads how tokens are chosen.
func (s *Server) sampling(f *fields, o *engine.Sampling) {
	o.Options = sample.DefaultOptions()
	o.Options.Temperature = f.number("temperature", 0.8, 0, 1e6)
	o.Options.TopP = f.number("top_p", 0.95, 0, 1)
	o.Options.MinP = f.number("min_p", 0.05, 0, 1)
	o.Options.TopK = int(max(f.integer("top_k", 40, -1, math.MaxInt32), 0)) // -1 is all, as in vLLM
	o.Options.Presence = f.number("presence_penalty", 0, -100, 100)
	o.Options.Frequency = f.number("frequency_penalty", 0, -100, 100)
	o.Options.Repetition = f.number("repeat_penalty", 1, 0.01, 100)
	o.LastN = int(f.integer("repeat_last_n", 64, -1, math.MaxInt32))
	o.Options.TopK = min(o.Options.TopK, s.x.Labels())
	if o.Options.TopP == 0 { // the best token alone, as in other servers
		o.Options.TopP, o.Options.TopK = 1, 1
	}
	if o.Options.Temperature > 0 && o.Options.Temperature < exact.MinTemperature {
		o.Options.Temperature = 0
	}
	o.Options.Seed = rand.Uint64()
	if seed := f.integer("seed", -1, math.MinInt64, math.MaxInt64); seed != -1 { // which is none, as in llama-server and vLLM
		o.Options.Seed = uint64(seed)
	}
	o.Banned = s.banned
	s.biases(f, o)
	n, allowed := 0, bitset.New(s.x.Labels())
	if f.list("allowed_tokens", "a list of ids of tokens", func(v jsonscan.Value) error {
		id, err := tokenID(v)
		if n++; err == nil && int64(id) >= int64(s.x.Labels()) {
			f.fail("allowed_tokens", "found %d, expected ids below %d", id, s.x.Labels())
			return f.failed
		} else if err == nil {
			allowed.Add(id)
		}
		return err
	}) {
		if n == 0 {
			f.fail("allowed_tokens", "found none, expected one at least")
			return
		}
		if o.Allowed != nil {
			allowed.Intersect(o.Allowed)
		}
		o.Allowed = allowed
	}
}

// biases reads logit_bias. A token with a bias of -100 is banned. If at most half of the tokens
// remain, they are the allowed tokens, and only their rows are read.
func (s *Server) biases(f *fields, o *engine.Sampling) {
	raw := bytes.TrimSpace(f.of["logit_bias"])
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	const expected = "an object of numbers, by ids of tokens"
	bans, banned, seen := 0, bitset.New(s.x.Labels()), bitset.New(s.x.Labels())
	if err := jsonscan.Value(raw).Entries(func(key []byte, v jsonscan.Value) error {
		id, err := strconv.ParseUint(string(key), 10, 32)
		if err != nil || int64(id) >= int64(s.x.Labels()) {
			return wrong("logit_bias", "found %.40q, expected ids of tokens, below %d", key, s.x.Labels())
		}
		var add float64
		if v.IsNull() || json.Unmarshal(v, &add) != nil {
			return wrong("logit_bias", "found %s, expected %s", short(raw), expected)
		}
		switch {
		case seen.Has(uint32(id)):
			return wrong("logit_bias", "found token %d twice, expected each once", id)
		case !(math.Abs(add) <= mostBias):
			return wrong("logit_bias", "found %v of token %d, expected %d to %d", add, id, -mostBias, mostBias)
		case add == -mostBias: // which bans
			banned.Add(uint32(id))
			bans++
		case add != 0:
			o.Biases = append(o.Biases, l2s.Bias{ID: uint32(id), Add: float32(add)})
		}
		seen.Add(uint32(id))
		return nil
	}); err != nil {
		failed := (*failure)(nil)
		if !errors.As(err, &failed) {
			failed = wrong("logit_bias", "found %s, expected %s", short(raw), expected)
		}
		f.failed = cmp.Or(f.failed, failed)
		return
	}
	slices.SortFunc(o.Biases, func(a, b l2s.Bias) int { return cmp.Compare(a.ID, b.ID) })
	if bans == 0 {
		return
	}
	if 2*bans >= s.x.Labels() {
		o.Allowed = bitset.New(s.x.Labels())
		o.Allowed.Fill()
		o.Allowed.Difference(banned)
		return
	}
	if s.banned != nil {
		banned.Union(s.banned)
	}
	o.Banned = banned
}

// prompt reads the prompt of /v1/completions: a text, a list with one, or ids of tokens.
func (s *Server) prompt(ctx context.Context, f *fields) ([]uint32, *failure) {
	const expected = "a string, a list with one string, or a list of ids of tokens"
	raw := bytes.TrimSpace(f.of["prompt"])
	if len(raw) == 0 || string(raw) == "null" {
		return nil, wrong("prompt", "found none, expected %s", expected)
	}
	bad := wrong("prompt", "found %s, expected %s", short(raw), expected)
	if raw[0] == '[' { // a list with one prompt is that prompt
		n, first := 0, jsonscan.Value(nil)
		if jsonscan.Value(raw).Array(func(v jsonscan.Value) error {
			if n++; n == 1 {
				first = v
			}
			return nil
		}) != nil {
			return nil, bad
		}
		switch {
		case n == 0:
			return nil, wrong("prompt", "found an empty list, expected %s", expected)
		case first[0] != '"' && first[0] != '[':
		case n > 1:
			return nil, wrong("prompt", "found %d prompts, expected one: one answer to a request", n)
		default:
			raw, bad = first, wrong("prompt", "found %s, expected %s", short(first), expected)
		}
	}
	if raw[0] == '"' {
		text, err := jsonscan.Value(raw).Bytes()
		if err != nil {
			return nil, bad
		}
		return s.tokens(ctx, "prompt", string(text))
	}
	var ids []uint32
	n := 0
	err := jsonscan.Value(raw).Array(func(v jsonscan.Value) error {
		id, err := tokenID(v)
		switch {
		case err != nil:
			return bad
		case int64(id) >= int64(s.m.Labels()):
			return wrong("prompt", "found token %d, expected ids below %d", id, s.m.Labels())
		}
		if n++; n <= s.m.Context() { // more are counted alone
			ids = append(ids, id)
		}
		return nil
	})
	failed := (*failure)(nil)
	switch {
	case errors.As(err, &failed):
		return nil, failed
	case err != nil:
		return nil, bad
	case n > s.m.Context():
		_, failed := s.start(nil, &engine.TooLongError{Tokens: n, Context: s.m.Context()})
		return nil, failed
	}
	return ids, nil
}

// bytes is the memory of what a request has after its body.
func (a *asked) bytes() int64 {
	n := 4*len(a.Prompt)*(1+a.choices) + 8*len(a.Biases) + 4*len(a.Named) + 32*a.grammar*(1+a.choices) // with the histories, and the rules of llama.cpp
	for _, text := range a.Stop {
		n += len(text)
	}
	for _, set := range []*bitset.Set{a.Allowed, a.Banned} {
		if set != nil {
			n += set.Len() / 8
		}
	}
	return int64(n)
}

// messages reads the messages of a chat, and returns the tokens of the prompt that they make.
func (s *Server) messages(ctx context.Context, f *fields, t *tools) ([]uint32, *failure) {
	text, failed := s.chat(ctx, f, t)
	if failed != nil {
		return nil, failed
	}
	return s.tokens(ctx, "messages", text)
}

// chat reads the messages of a chat, and returns the text that the template makes of them, and of
// tools, unless t is nil.
func (s *Server) chat(ctx context.Context, f *fields, t *tools) (string, *failure) {
	n, most := 0, min(mostMessages, s.m.Context()) // each has a token or more
	f.list("messages", "a list of messages", func(jsonscan.Value) error { n++; return nil })
	if f.failed != nil || n == 0 || n > most {
		return "", cmp.Or(f.failed, wrong("messages", "found %d messages, expected 1 to %d", n, most))
	}
	messages := make([]llamacpp.Message, 0, n)
	f.list("messages", "a list of messages", func(v jsonscan.Value) error {
		m, failed := message(json.RawMessage(v))
		if failed != nil {
			f.failed = wrong("messages["+strconv.Itoa(len(messages))+"]", "%s", failed.Message)
			return f.failed
		}
		messages = append(messages, m)
		return nil
	})
	if f.failed != nil {
		return "", f.failed
	}
	if n, most := lengths(messages), mostBytes*s.m.Context(); n > most { // before a template copies them
		return "", wrong("messages", "found %d bytes, expected at most %d, which a context of %d tokens has room for", n, most, s.m.Context()).code(tooLong)
	}
	if s.template == nil {
		return "", wrong("", "the model has no chat template: use /v1/completions, or start the server with --chat-template").code("no_chat_template")
	}
	select {
	case s.readers <- struct{}{}:
	case <-ctx.Done():
		return "", ended(ctx.Err(), "")
	}
	defer func() { <-s.readers }()
	chat := llamacpp.Chat{Messages: messages}
	if t != nil && s.rendersTools {
		chat.Tools = t.raw
	} else if f.has("tools") && !s.rendersTools {
		var failed *failure
		if chat.Messages, failed = t.describe(messages); failed != nil {
			return "", failed
		}
	}
	text, err := s.template.Render(chat)
	var of *llamacpp.MessageError
	if errors.As(err, &of) {
		return "", wrong(fmt.Sprintf("messages[%d].%s", of.Index, of.Field), "%s", of.What)
	} else if err != nil {
		return "", wrong("messages", "%s", strings.TrimPrefix(err.Error(), "llamacpp: "))
	}
	return text, nil
}

// lengths is the number of bytes of messages.
func lengths(messages []llamacpp.Message) (n int) {
	for _, m := range messages {
		n += len(m.Content) + len(m.ToolCalls) + len(m.FunctionCall) + len(m.Reasoning) + len(m.Refusal) + len(m.Name) + len(m.ToolCallID)
	}
	return n
}

// message reads one message: its content is a text, or a list of parts that are texts.
func message(raw json.RawMessage) (llamacpp.Message, *failure) {
	var none llamacpp.Message
	m, failed := parse(raw)
	switch {
	case failed != nil && raw[0] == '{': // of valid JSON: a field twice
		return none, failed
	case failed != nil:
		return none, wrong("", "found %s, expected an object with role and content", short(raw))
	}
	x := llamacpp.Message{}
	if !m.get("role", "a string", &x.Role) || x.Role == "" {
		return none, cmp.Or(m.failed, wrong("role", "found none, expected one, such as \"user\""))
	}
	switch x.Role {
	case "system", "user", "assistant", "tool", "function":
	case "developer": // which models do not know
		x.Role = "system"
	default:
		return none, wrong("role", "found %.40q, expected system, developer, user, assistant, tool or function", x.Role)
	}
	m.get("name", "a string", &x.Name)
	m.get("tool_call_id", "a string", &x.ToolCallID)
	if x.Role == "assistant" {
		if !m.get("reasoning_content", "a string", &x.Reasoning) {
			m.get("reasoning", "a string", &x.Reasoning)
		}
		m.get("refusal", "a string", &x.Refusal)
		if m.has("tool_calls") {
			x.ToolCalls = m.of["tool_calls"]
		}
		if m.has("function_call") {
			x.FunctionCall = m.of["function_call"]
		}
	}
	if m.failed != nil {
		return none, m.failed
	}
	for _, name := range []string{"tool_calls", "function_call", "refusal"} {
		if x.Role != "assistant" && m.has(name) {
			return none, wrong(name, "found %s of the role %q, expected it of an assistant alone", short(m.of[name]), x.Role)
		}
	}
	if x.ToolCallID != "" && x.Role != "tool" && x.Role != "function" {
		return none, wrong("tool_call_id", "found %.40q of the role %q, expected it of the result of a call alone", x.ToolCallID, x.Role)
	}
	for _, name := range []string{"audio", "images"} {
		if m.has(name) {
			return none, wrong(name, "found %s, expected none: messages are texts", short(m.of[name]))
		}
	}
	if len(x.ToolCalls) > 0 && len(x.FunctionCall) > 0 {
		return none, wrong("function_call", "found function_call and tool_calls, expected one of both")
	}
	content := bytes.TrimSpace(m.of["content"])
	calls := len(x.ToolCalls)+len(x.FunctionCall) > 0
	if x.Role == "assistant" && (string(content) == "null" || calls && len(content) == 0) { // as clients send it with calls
		return x, nil
	}
	if len(content) == 0 || content[0] != '[' {
		if !m.get("content", "a string, or a list of parts", &x.Content) {
			return none, cmp.Or(m.failed, wrong("content", "found none, expected a string, or a list of parts"))
		}
		return x, nil
	}
	var b strings.Builder
	m.list("content", "a list of parts", func(v jsonscan.Value) error {
		raw := json.RawMessage(v)
		p, failed := parse(raw)
		switch {
		case failed != nil && raw[0] == '{': // of valid JSON: a field twice
			m.failed = failed
			return failed
		case failed != nil:
			m.failed = wrong("content", "found the part %s, expected an object with type and text", short(raw))
			return m.failed
		}
		var kind, text string
		if p.get("type", "a string", &kind); kind != "text" {
			m.failed = wrong("content", "found a part of the type %.40q, expected \"text\"", kind)
			return m.failed
		}
		if !p.get("text", "a string", &text) {
			m.failed = wrong("content", "found a part without a text, expected one")
			return m.failed
		}
		b.WriteString(text)
		return nil
	})
	if m.failed != nil {
		return none, m.failed
	}
	x.Content = b.String()
	return x, nil
}

// No language has, on average, mostBytes bytes per token. Tokenizers of llama.cpp take long for
// some texts, in proportion to the square of the length, and cannot be interrupted: with few at
// once the engine keeps its core.
const (
	mostBytes   = 16
	mostReaders = 2
	shortText   = 2048 // bytes of a text that waits for no other: it takes a thousandth of the time of 64 kB
)

// tokens returns the tokens of a text. A text with more bytes than the context can have is not
// looked at.
func (s *Server) tokens(ctx context.Context, name, text string) ([]uint32, *failure) {
	if most := mostBytes * s.m.Context(); len(text) > most {
		return nil, wrong(name, "found %d bytes, expected at most %d, which a context of %d tokens has room for", len(text), most, s.m.Context()).code(tooLong)
	}
	if len(text) > shortText {
		s.tokenizing.Add(1)
		defer s.tokenizing.Add(-1)
		select {
		case s.readers <- struct{}{}:
		case <-ctx.Done():
			return nil, ended(ctx.Err(), "")
		}
		defer func() { <-s.readers }()
	}
	ids := s.m.Tokens(text, true)
	if len(ids) == 0 {
		return nil, wrong(name, "found a text without tokens, expected one at least")
	}
	return ids, nil
}

const tooLong = "context_length_exceeded"
