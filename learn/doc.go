// Package learn makes a screen while a program answers: no contexts to collect, no training step.
//
//	l, err := learn.New(layer, learn.Options{Event: func(e learn.Event) { log.Println(e.Kind+":", e.Text) }})
//	defer l.Close()
//	n, err := l.TopK(top, h) // in any goroutine
//
// A [Learner] begins with the exact layer, and changes to a preview (package preview) after some
// thousand contexts of a large layer. It keeps contexts with their best labels in memory (with
// trainings and screens within Options.Bytes, 512 MiB by default; nothing on disk except the
// screen, if Options.Keep names a file), trains in the background on a part of one core, and lets
// the screen answer once it reaches the target on contexts that came after its training. An audit
// watches the screen. After its alarm the preview or the exact layer answers again, and the Learner
// learns from the new contexts. Traffic that is hard to learn only costs time.
//
// A training begins with Options.Least contexts, again with all contexts as long as the target is
// not reached, and after that with four times the contexts. A learned screen has no tail unless
// Options.Train has one: then sums over all labels are exact.
// [Learner.WriteContexts] writes the contexts for a training elsewhere.
package learn
