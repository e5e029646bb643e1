package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/screen"
)

// audited answers /audit: for a reader, in plain text.
func (v *service) audited(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if v.audit == nil {
		fmt.Fprintln(w, "There is no audit: -audit is 0.")
		return
	}
	if v.learner != nil && !v.learner.Screened() {
		fmt.Fprintf(w, "The exact layer answers, until a screen is learned: %d contexts have been kept.\n", v.learner.Contexts().Kept())
		for _, kind := range []string{learn.Unlearnt, learn.Failed, learn.Declined, learn.Began, learn.Trains, learn.Trial} {
			if e, ok := v.steps.Load(kind); ok {
				fmt.Fprintf(w, "Last event %q: %s\n", kind, e.(learn.Event).Text)
			}
		}
		return
	}
	writeAudit(w, v.pool.Generation(), v.audit.Report())
}

func writeAudit(w io.Writer, generation uint64, r screen.AuditReport) {
	switch {
	case len(r.Alarms) > 0:
		fmt.Fprintln(w, "ALARM: the contexts have drifted from those that the screen was trained for.")
		for _, x := range r.Alarms {
			fmt.Fprintf(w, "  %s: %s\n", x.Of, x.Text)
		}
		fmt.Fprintln(w, "Until it is trained anew, on such contexts, ask with the budget \"exact\", or with a larger one if the table of budgets below says that it finds enough.")
	case r.Audited == 0:
		fmt.Fprintln(w, "Nothing is known yet.")
	default:
		fmt.Fprintf(w, "No alarm, by %d contexts sampled and %d exact answers. A loss of two or three hundredths of precision shows within 2,000 exact answers.\n", r.Sampled, r.Audited)
	}
	fmt.Fprintf(w, "\nGeneration %d: %d contexts sampled, %d of them answered exactly too.\n", generation, r.Sampled, r.Audited)
	if r.Err != nil {
		fmt.Fprintf(w, "The last exact answer failed: %v\n", r.Err)
	}
	if r.Window > 0 {
		fmt.Fprintf(w, "\nPrecision of the last %d of them, with 95%% intervals, and what training leads one to expect of their budgets:\n", r.Window)
		line := func(name string, e, expected screen.Estimate) {
			fmt.Fprintf(w, "  %-5s %.4f (%.4f to %.4f)   expected %.4f (%.4f to %.4f)\n", name, e.Value, e.Low, e.High, expected.Value, expected.Low, expected.High)
		}
		line("P@1", r.Precision1, r.Expected1)
		line(fmt.Sprintf("P@%d", r.K), r.PrecisionK, r.ExpectedK)
		fmt.Fprintf(w, "\nOther budgets on the same contexts:\n  %10s %12s %8s %8s\n", "budget", "candidates", "P@1", fmt.Sprintf("P@%d", r.K))
		for _, x := range r.Ladder {
			fmt.Fprintf(w, "  %10.4g %12.1f %8.4f %8.4f\n", x.Budget, x.MeanCandidates, x.Precision1.Value, x.PrecisionK.Value)
		}
	}
	if r.Geometry == nil {
		fmt.Fprintln(w, "\nThe screen does not say how the contexts of training lay: geometry is not watched.")
		return
	}
	if r.Sampled == 0 {
		return
	}
	fmt.Fprintln(w, "\nHow contexts lie to the clusters. Every sample counts here, the last thousand or so most, where an alarm\ncounts from the change on; precision above is of those alone that were answered exactly. A line is of the contexts below\nits number and not below that of the line before. \"at most\" is what a stretch of training's text may have.")
	histogram(w, "Cosines of contexts and their clusters", r.Geometry.Cosine, r.Cosine)
	histogram(w, "Leads: products of the best cluster less those of the second best", r.Geometry.Lead, r.Lead)
}

// histogram writes the shares of bins, of the last samples and of training.
func histogram(w io.Writer, name string, h screen.Histogram, now []float64) {
	if len(h.Shares) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s, now and in training:\n  %10s %8s %8s %8s\n", name, "below", "now", "training", "at most")
	for i := range h.Shares {
		below := "above"
		if i < len(h.Edges) {
			below = fmt.Sprintf("%.6g", h.Edges[i])
		}
		fmt.Fprintf(w, "  %10s %7.1f%% %7.1f%% %7.1f%%\n", below, 100*now[i], 100*h.Shares[i], 100*h.Most[i])
	}
}
