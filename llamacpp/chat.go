package llamacpp

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// Message is one message of a chat.
type Message struct {
	Role    string // "system", "user" or "assistant", most often
	Content string
}

// ErrTemplate is the error of [Model.Chat], by errors.Is, for a model without a template, or with
// one that llama.cpp does not know.
var ErrTemplate = errors.New("llamacpp: no chat template")

// ChatTemplate returns the chat template of the file, "" if it has none.
func (m *Model) ChatTemplate() string { return llama.ModelChatTemplate(m.model, "") }

// ChatTemplates returns the names of the templates that llama.cpp has, for [Model.Chat].
func ChatTemplates() []string { return llama.ChatBuiltinTemplates() }

// Chat returns the text of a chat up to the place where the assistant continues, for [Model.Tokens]
// with special tokens, by a template: the text of one, the name of one of [ChatTemplates], or ""
// for the template of the file. llama.cpp does not run templates: it recognises the common ones by
// parts of their text, and its output may differ from the template's, in a default system message
// for instance.
func (m *Model) Chat(template string, messages ...Message) (string, error) {
	from := "the template"
	if template == "" {
		from = m.path
		if template = m.ChatTemplate(); template == "" {
			return "", fmt.Errorf("%w: %s: found no tokenizer.chat_template, expected one, or a name of a template", ErrTemplate, m.path)
		}
	}
	if len(messages) == 0 {
		return "", errors.New("llamacpp: messages: found none, expected one at least")
	}
	size := len(template)
	chat := make([]llama.ChatMessage, len(messages))
	for i, message := range messages {
		role, content := valid(message.Role), valid(message.Content)
		if strings.ContainsRune(role, 0) || strings.ContainsRune(content, 0) {
			return "", fmt.Errorf("llamacpp: messages[%d]: found a NUL, expected text without one", i)
		}
		if size += len(role) + len(content) + 64; size > MaxText {
			return "", fmt.Errorf("llamacpp: messages[%d]: found a chat above %d bytes, expected at most %[2]d", i, MaxText)
		}
		chat[i] = llama.NewChatMessage(role, content)
	}
	for range 2 {
		buf := make([]byte, size)
		n := int(llama.ChatApplyTemplate(template, chat, true, buf))
		runtime.KeepAlive(chat)
		switch {
		case n < 0:
			return "", fmt.Errorf("%w: %s: found a chat template that llama.cpp does not know, expected one like the templates of %s", ErrTemplate, from, strings.Join(ChatTemplates(), ", "))
		case n <= len(buf):
			return string(buf[:n]), nil
		}
		size = n
	}
	return "", errors.New("llamacpp: found a chat whose length llama.cpp does not know")
}
