package main

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// conversed has a conversation of these lines, and returns the answers, and what was said.
func conversed(t *testing.T, status int, lines string, args ...string) (string, string) {
	t.Helper()
	need(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func(before *os.File) { standardInput = before; r.Close() }(standardInput)
	standardInput = r
	go func() { w.WriteString(lines); w.Close() }()
	return runs(t, context.Background(), status, append([]string{"generate", "--model", gguf, "--threads", "1", "--temp", "0", "--chat", "--chat-template", "chatml"}, args...)...)
}

// A conversation keeps its turns: the first answer is that of a chat of one message, and each further turn
// reads what is new alone. Empty lines are no messages, and a backslash joins lines.
func TestAConversation(t *testing.T) {
	flags := []string{"-n", "8", "--ignore-eos", "--system", "Be brief."}
	want, _ := conversed(t, 0, "", append(flags, "--prompt", "Say\nyes.")...)
	out, said := conversed(t, 0, "Say\\\nyes.\n\n  \nAnd no.\nThe configuration file", flags...)
	if !strings.HasPrefix(out, want) || strings.TrimSpace(want) == "" {
		t.Errorf("found %q, expected the first answer %q", out, want)
	}
	turns := regexp.MustCompile(`prompt: (\d+) tokens(?:, of which (\d+) were read before)?`).FindAllStringSubmatch(said, -1)
	if len(turns) != 3 {
		t.Fatalf("found %d turns in %q, expected 3", len(turns), said)
	}
	before := 0
	for i, turn := range turns {
		n, _ := strconv.Atoi(turn[1])
		cached, _ := strconv.Atoi(turn[2])
		if n <= before || (cached > 0) != (i > 0) || i > 0 && cached < before {
			t.Errorf("turn %d: found a prompt of %d tokens, %d of them cached, expected more than the %d before, and these cached", i+1, n, cached, before)
		}
		before = n
	}
	if out, said := conversed(t, 0, "", flags...); out != "" || strings.Contains(said, "prompt: ") {
		t.Errorf("no message: found %q and %q", out, said)
	}
}

// Where the context has no room for a conversation its first turns are forgotten, and a message that has
// no room alone is left out.
func TestALongConversation(t *testing.T) {
	line := "The configuration file has three sections.\n"
	_, said := conversed(t, 0, strings.Repeat(line, 6), "-n", "8", "--ignore-eos", "--context", "96")
	if !strings.Contains(said, "turns of the chat are forgotten") || strings.Count(said, "prompt: ") != 6 {
		t.Errorf("found %q, expected six answers, and turns that are forgotten", said)
	}
	_, said = conversed(t, 0, strings.Repeat("word ", 200)+"\n"+line, "-n", "4", "--ignore-eos", "--context", "96")
	if !strings.Contains(said, "the message is left out: found a chat of ") || strings.Count(said, "prompt: ") != 1 {
		t.Errorf("found %q, expected the first message left out, and an answer to the second", said)
	}
	if _, said = conversed(t, 1, strings.Repeat("x", mostLine+1)+"\n"); !strings.Contains(said, "found a line of more than") {
		t.Errorf("found %q, expected the end of a line that is too long", said)
	}
}
