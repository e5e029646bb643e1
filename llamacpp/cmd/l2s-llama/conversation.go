package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// standardInput is where a conversation comes from.
var standardInput = os.Stdin

// mostLine bounds a line of a conversation, in bytes.
const mostLine = 1 << 20

// conversation is a chat of several turns. The sequence of llama.cpp stays from turn to turn, so that a
// turn reads its new tokens alone.
type conversation struct {
	f        *flags
	m        *llamacpp.Model
	e        *engine.Engine
	template *llamacpp.Template
	messages []llamacpp.Message
	fixed    int // messages at the beginning that stay: of the system
	in       *bufio.Scanner
	asks     bool // for a message, at a terminal
}

// converse answers the messages of a user, which come on lines, until there are no more.
func (f *flags) converse(ctx context.Context, m *llamacpp.Model, x *llamacpp.Head, r engine.Request, system string) error {
	t, err := m.Template(f.template)
	if err != nil {
		return otherTemplate(err)
	}
	e, end := running(m, x, engine.Options{Cache: -1})
	defer end() // before the model is closed
	c := &conversation{f: f, m: m, e: e, template: t, in: bufio.NewScanner(standardInput)}
	c.in.Buffer(nil, mostLine)
	if info, err := standardInput.Stat(); err == nil {
		c.asks = info.Mode()&os.ModeCharDevice != 0
	}
	if system != "" {
		c.messages, c.fixed = append(c.messages, llamacpp.Message{Role: "system", Content: system}), 1
	}
	if c.asks {
		f.say("each line is a message, \\ at its end continues it on the next one; the end of the input, Ctrl-D, ends the chat\n")
	}
	var all engine.Result
	for {
		text, err := waiting(ctx, f, c.next)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		done, err := c.turn(ctx, r, text)
		if err != nil {
			return err
		}
		all.Exact, all.Written = all.Exact+done.Exact, all.Written+done.Written
		all.Fallbacks.Far, all.Fallbacks.Crowded = all.Fallbacks.Far+done.Fallbacks.Far, all.Fallbacks.Crowded+done.Fallbacks.Crowded
		r.Options.Seed++ // another draw for each turn
	}
	f.reasons(x, r, all)
	return nil
}

// next returns the next message, or io.EOF.
func (c *conversation) next() (string, error) {
	var lines []string
	for {
		if c.asks {
			c.f.say("> ")
		}
		if !c.in.Scan() {
			if err := c.in.Err(); errors.Is(err, bufio.ErrTooLong) {
				return "", fmt.Errorf("standard input: found a line of more than %d bytes, expected at most these", mostLine)
			} else if err != nil {
				return "", fmt.Errorf("standard input: %w", err)
			}
			if len(lines) == 0 {
				return "", io.EOF
			}
			return strings.Join(lines, "\n"), nil
		}
		line, more := strings.CutSuffix(c.in.Text(), `\`)
		if lines = append(lines, line); !more {
			if text := strings.Join(lines, "\n"); strings.TrimSpace(text) != "" {
				return text, nil
			}
			lines = nil
		}
	}
}

// turn answers a message. What is wrong with it alone is said, and the conversation goes on without it.
func (c *conversation) turn(ctx context.Context, r engine.Request, text string) (engine.Result, error) {
	before := len(c.messages)
	c.messages = append(c.messages, llamacpp.Message{Role: "user", Content: text})
	leave := func(format string, a ...any) (engine.Result, error) {
		c.messages = c.messages[:before]
		c.f.say(format, a...)
		return engine.Result{}, nil
	}
	var ids []uint32
	left := 0
	for {
		prompt, err := c.template.Render(llamacpp.Chat{Messages: c.messages})
		if err != nil {
			return leave("the message is left out: %v\n", err)
		}
		if ids, err = c.f.tokens(ctx, c.m, prompt, true); err != nil {
			return engine.Result{}, err
		}
		if len(ids) < c.m.Context() {
			break
		}
		if len(c.messages) < c.fixed+3 { // the message alone
			return leave("the message is left out: found a chat of %d tokens, expected at most %d, which the context has room for: see --context\n", len(ids), c.m.Context()-1)
		}
		c.messages = append(c.messages[:c.fixed:c.fixed], c.messages[c.fixed+2:]...) // a message with its answer
		before, left = before-2, left+1
	}
	if left > 0 {
		c.f.say("the context is full: the first %d turns of the chat are forgotten\n", left)
	}
	done, answer, err := c.f.write(ctx, c.m, c.e, r, ids)
	if err != nil {
		return done, err
	}
	if strings.TrimSpace(answer) == "" { // of which a template may make nothing
		c.messages = c.messages[:before]
		return done, nil
	}
	c.messages = append(c.messages, llamacpp.Message{Role: "assistant", Content: answer})
	return done, nil
}
