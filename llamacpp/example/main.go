// Command example continues a prompt: example LIBRARIES MODEL.gguf PROMPT [SCREEN.l2s]
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/llamacpp"
)

func main() {
	if len(os.Args) < 4 {
		log.Fatal("example LIBRARIES MODEL.gguf PROMPT [SCREEN.l2s]")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		log.Fatal(err)
	}
}

func run(libraries, model, prompt string, screens []string) error {
	if err := llamacpp.Load(libraries); err != nil {
		return err
	}
	m, err := llamacpp.Open(model, llamacpp.Options{Context: 512})
	if err != nil {
		return err
	}
	defer m.Close()
	var o llamacpp.HeadOptions // the exact search
	if len(screens) > 0 {
		var err error
		if o.Index, err = l2s.Load(screens[0]); err != nil { // a screen or a preview
			return err
		}
	}
	x, err := m.Head(o)
	if err != nil {
		return err
	}
	defer x.Close()

	ctx := context.Background()
	h, err := m.Feed(ctx, 0, m.Tokens(prompt, true)...) // the hidden state after the prompt
	if err != nil {
		return err
	}
	best := make([]l2s.Prediction, 1)
	for m.Len(0) < m.Context() {
		if _, err := x.Search(best, h, l2s.Request{}); err != nil {
			return err
		}
		if m.Ends(best[0].ID) {
			break
		}
		fmt.Print(m.Piece(best[0].ID))
		if h, err = m.Feed(ctx, 0, best[0].ID); err != nil {
			return err
		}
	}
	fmt.Println()
	return nil
}
