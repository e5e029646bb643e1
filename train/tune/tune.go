// Package tune chooses the clusters and the budget of a screen by measurement. It
// labels the contexts once, trains screens of several forms by k-means, each for many
// budgets, and measures their precision on held-out contexts and their times. Of the
// form that does best it tries refinements, such as learning. The fastest screen that
// reaches a target is recommended.
package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// Options say what is tried, and what the screen is to reach.
type Options struct {
	// Train holds the options of all runs. A form changes some of them, and Run sets
	// Budget and KMeansOnly. Its Progress is told how the search for labels goes. With a
	// Checkpoint the files of [CheckpointFiles] keep the labels, and the clusters of each
	// form. A run that was interrupted continues from there; [RemoveCheckpoint] removes
	// the files.
	Train train.Options
	// Adjust, unless nil, changes what a form has set.
	Adjust func(o *train.Options)
	// Forms are tried by k-means alone.
	Forms []Form
	// Budgets are the budgets of each form, ascending. A budget that cannot hold the k
	// labels, or the labels that are always included, is left out.
	Budgets []float64
	// Refine tries refinements of the form that does best: a second probe, shells,
	// and learning.
	Refine bool
	// Target is the P@k on held-out contexts that the screen is to reach, above 0 and
	// below 1.
	Target float64
	// Cold chooses by the time with cold caches.
	Cold bool
	// Measure measures the times of screens, which are compared with each other.
	Measure func(ctx context.Context, screens []*screen.Model) ([]Cost, error)
	// Progress, unless nil, is called with the progress of the run of a form.
	Progress func(form string, p train.Progress)
	// Done, unless nil, is called for each form with its screens, without costs, and with
	// how far the run is.
	Done func(form string, screens []Screen, now Step)
}

// Step says how far a run is.
type Step struct {
	// Done of Forms are tried, the refinements to come among them.
	Done, Forms int
	// Share is the share of the work on the forms that is done, by an estimate: labels and
	// the measurement of times are no part of it.
	Share float64
}

// Cost is the mean time of a query: with warm caches, and with caches that have been
// filled with other data before each query.
type Cost struct{ Warm, Cold time.Duration }

// Screen is a screen with its figures.
type Screen struct {
	Form string
	*screen.Model
	// Record is the record in the model: its options make the same screen again, and
	// its Unseen has the figures on held-out contexts.
	Record *train.Record
	// Rows is the mean number of rows that a query scans: the vectors that find its
	// cluster, and the candidates.
	Rows float64
	// Bytes is the size of the screen's file.
	Bytes int64
	Cost
	// Frontier says that no other screen is as fast and at least as precise.
	Frontier bool
}

// precision is P@k on held-out contexts.
func (s *Screen) precision() float64 { return s.Record.Unseen.PrecisionK }

// Result is what was found.
type Result struct {
	// Screens are the screens whose times were measured, the fastest first.
	Screens []Screen
	// Trained is the number of all screens. A screen is not measured if it scans twice
	// the rows of another that is as precise, or if it is far below the target.
	Trained int
	// Best is the index in Screens of the recommended screen. Among the screens that
	// reach the target, and whose time is within 3% of the fastest of them, it is the
	// most precise. If no screen reaches the target it is the most precise of all.
	Best int
	// Reached says whether it reaches the target.
	Reached bool
}

// Which screens are measured, and which times count as equal.
const (
	hopeless = 10   // times as many missed as the target allows: not measured
	wasteful = 2    // times the rows of a screen as precise: not measured
	sameTime = 1.03 // of the fastest
)

// CheckpointFiles returns the names of the files that a run with these forms and the
// Checkpoint path may keep.
func CheckpointFiles(path string, forms []Form) []string {
	files := train.CheckpointFiles(path)
	for _, name := range names(forms) {
		files = append(files, train.CheckpointFiles(formCheckpoint(path, name))[0])
	}
	return files
}

// RemoveCheckpoint removes the files of [CheckpointFiles], and the files that runs with
// other forms have left. The errors are the errors of train.RemoveCheckpoint.
func RemoveCheckpoint(path string, forms []Form) error {
	if err := removeOthers(path); err != nil {
		return err
	}
	for _, name := range names(forms) {
		if err := train.RemoveCheckpoint(formCheckpoint(path, name)); err != nil {
			return err
		}
	}
	return train.RemoveCheckpoint(path)
}

var formName = regexp.MustCompile(`^[0-9]+(x[0-9]+|-through-[0-9]+)?(-probe)?(-learned)?$`)

// removeOthers removes the states of forms at path that any run has left. A file with
// such a name that is not a state stays.
func removeOthers(path string) error {
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, file := range files {
		name, found := strings.CutPrefix(file.Name(), filepath.Base(path)+"-")
		if !found || !formName.MatchString(name) {
			continue
		}
		state := formCheckpoint(path, name)
		if _, err := os.Lstat(train.CheckpointFiles(state)[1]); !errors.Is(err, fs.ErrNotExist) {
			continue // the state of a form has no labels: these are someone's own
		}
		_ = train.RemoveCheckpoint(state) // an error is of a file that is no state
	}
	return nil
}

// names returns the names of the forms, and of the forms that they are refined to.
func names(forms []Form) (all []string) {
	for _, f := range forms {
		all = append(all, f.Name)
		for _, r := range refinements(f, 1, &train.Options{LearningOptions: train.LearningOptions{Iterations: 1}, SetOptions: train.SetOptions{Geometry: 1}}) {
			all = append(all, r.Name)
		}
	}
	return all
}

func formCheckpoint(path, form string) string { return path + "-" + form }

// run is the state of Run.
type run struct {
	*Options
	layer    *softmax.Layer
	contexts []float32
	labels   []uint32
	budgets  []float64
	trained  int
	all      []Screen

	tried     int
	work      float64   // of the forms that are tried
	ahead     []float64 // the work of each form to come, in order
	refinable []float64 // the work of each refinement to come, for the mean of the forms
}

// Run tries all forms. The screens depend on the options alone, but the choice among
// them depends on times: a screen that is to be the same again is trained with the
// options in its record.
//
// It returns the errors of train.Run and of Measure, and an error if no form or budget
// fits or if no contexts are held out. If ctx is cancelled it returns an error for which
// errors.Is with ctx.Err() holds.
func Run(ctx context.Context, layer *softmax.Layer, contexts []float32, opt Options) (*Result, error) {
	r := &run{Options: &opt, layer: layer, contexts: contexts}
	least := float64(max(opt.Train.K, len(opt.Train.Always)))
	for _, b := range opt.Budgets {
		if b >= least {
			r.budgets = append(r.budgets, b)
		}
	}
	switch {
	case len(opt.Forms) == 0:
		return nil, fmt.Errorf("tune: forms: found none, expected at least one")
	case len(r.budgets) == 0:
		return nil, fmt.Errorf("tune: budgets: found %v, expected one of at least %v candidates", opt.Budgets, least)
	case !(opt.Target > 0 && opt.Target < 1):
		return nil, fmt.Errorf("tune: target: found %v, expected above 0 and below 1", opt.Target)
	}
	if path := opt.Train.Checkpoint; path != "" { // what the last form would refuse is refused before the first
		for _, name := range names(opt.Forms) {
			if err := train.CheckCheckpoint(formCheckpoint(path, name)); err != nil {
				return nil, err
			}
		}
	}
	o := r.optionsOf(opt.Forms[0])
	o.Checkpoint, o.Progress = opt.Train.Checkpoint, opt.Train.Progress
	var err error
	if r.labels, err = train.FindLabels(ctx, layer, contexts, o); err != nil {
		return nil, err
	}
	r.plan()
	for _, f := range opt.Forms {
		if err := r.try(ctx, f, r.budgets); err != nil {
			return nil, err
		}
	}
	found, err := r.measure(ctx)
	if err != nil || !opt.Refine {
		return found, err
	}
	best := found.Screens[found.Best]
	form := opt.Forms[slices.IndexFunc(opt.Forms, func(f Form) bool { return f.Name == best.Form })]
	more := refinements(form, best.Record.Options.Budget, &opt.Train)
	if len(more) == 0 {
		return found, nil
	}
	r.ahead, r.refinable = nil, nil
	for _, f := range more {
		r.ahead = append(r.ahead, r.workOf(f))
	}
	for _, f := range more {
		if err := r.try(ctx, f, r.nearBudgets(best.Record.Options.Budget)); err != nil {
			return nil, err
		}
	}
	return r.measure(ctx)
}

// nearBudgets returns the budgets to try for a refinement of a screen that has this
// budget: the refinement is as precise with fewer candidates, or more precise.
func (r *run) nearBudgets(budget float64) []float64 {
	near := []float64{budget}
	for _, b := range r.budgets {
		if b >= budget/2 && b <= budget*1.3 {
			near = append(near, b)
		}
	}
	slices.Sort(near)
	return slices.Compact(near)
}

// optionsOf returns the options of the run of a form.
func (r *run) optionsOf(f Form) train.Options {
	o := r.Train
	o.Measure, o.KMeansOnly = true, true
	if r.labels != nil {
		o.Labels = r.labels
	}
	o.Budget = r.budgets[len(r.budgets)/2]
	f.Set(&o)
	if r.Adjust != nil {
		r.Adjust(&o)
	}
	if o.Checkpoint != "" {
		o.Checkpoint = formCheckpoint(o.Checkpoint, f.Name)
	}
	o.Progress = nil
	if r.Progress != nil {
		o.Progress = func(p train.Progress) { r.Progress(f.Name, p) }
	}
	return o
}

// try trains the screens of a form and keeps those that are worth their rows.
func (r *run) try(ctx context.Context, f Form, budgets []float64) error {
	o := r.optionsOf(f)
	models, records, err := train.RunBudgets(ctx, r.layer, r.contexts, o, budgets)
	if errors.Is(err, train.ErrCheckpoint) && !slices.ContainsFunc(r.Forms, func(g Form) bool { return g.Name == f.Name }) {
		// A refinement of a form that was chosen at another budget: its state is of
		// no use.
		if err := train.RemoveCheckpoint(o.Checkpoint); err != nil {
			return err
		}
		models, records, err = train.RunBudgets(ctx, r.layer, r.contexts, o, budgets)
	}
	if err != nil {
		return err
	}
	var screens []Screen
	for i, m := range models {
		s := Screen{Form: f.Name, Model: m, Record: records[i]}
		if s.Record.Unseen == nil {
			return fmt.Errorf("tune: contexts: found %d, of which none is held out, expected more", s.Record.Contexts)
		}
		if n := len(screens); n > 0 && screens[n-1].Record.MeanCandidates == s.Record.MeanCandidates {
			break // the sets are at their end
		}
		if s.Bytes, err = m.WriteTo(io.Discard); err != nil {
			return err
		}
		routing, err := r.routing(m)
		if err != nil {
			return err
		}
		s.Rows = routing + s.Record.Unseen.MeanCandidates
		screens = append(screens, s)
	}
	now := r.step()
	if r.Done != nil {
		r.Done(f.Name, screens, now)
	}
	r.trained += len(screens)
	r.all = worthwhile(append(r.all, screens...), r.Target)
	return nil
}

// routing returns the mean number of vectors that find the cluster of a context.
func (r *run) routing(m *screen.Model) (float64, error) {
	s, err := screen.NewSearcher(m, r.layer)
	if err != nil {
		return 0, err
	}
	dim := r.layer.Dim()
	n := len(r.contexts) / dim
	asked := min(n, 256)
	dst := make([]softmax.Prediction, 1)
	for j := range asked {
		i := j * n / asked
		if _, err := s.TopK(dst, r.contexts[i*dim:(i+1)*dim]); err != nil {
			return 0, err
		}
	}
	return float64(s.Stats().Routing) / float64(asked), nil
}

// worthwhile returns the screens that are not hopeless and not wasteful, at least the most
// precise one.
func worthwhile(screens []Screen, target float64) []Screen {
	best := slices.MaxFunc(screens, func(a, b Screen) int { return cmp.Compare(a.precision(), b.precision()) })
	least := min(1-hopeless*(1-target), best.precision())
	return slices.DeleteFunc(slices.Clone(screens), func(s Screen) bool {
		return s.precision() < least || slices.ContainsFunc(screens, func(q Screen) bool {
			return q.precision() >= s.precision() && wasteful*q.Rows <= s.Rows
		})
	})
}

// measure measures the times of all screens that are left, and recommends one.
func (r *run) measure(ctx context.Context) (*Result, error) {
	models := make([]*screen.Model, len(r.all))
	for i, s := range r.all {
		models[i] = s.Model
	}
	costs, err := r.Measure(ctx, models)
	if err != nil {
		return nil, err
	}
	for i := range r.all {
		r.all[i].Cost = costs[i]
	}
	found := &Result{Screens: slices.Clone(r.all), Trained: r.trained}
	slices.SortStableFunc(found.Screens, func(a, b Screen) int {
		return cmp.Or(cmp.Compare(r.time(&a), r.time(&b)), cmp.Compare(b.precision(), a.precision()))
	})
	markFrontier(found.Screens)
	found.Best, found.Reached = r.choose(found.Screens)
	return found, nil
}

func (r *run) time(s *Screen) time.Duration {
	if r.Cold {
		return s.Cold
	}
	return s.Warm
}

// markFrontier marks the screens, the fastest first, that are more precise than all
// faster ones.
func markFrontier(screens []Screen) {
	most := -1.0
	for i := range screens {
		s := &screens[i]
		s.Frontier = s.precision() > most
		most = max(most, s.precision())
	}
}

// choose returns the screen to recommend. The fastest of screens comes first.
func (r *run) choose(screens []Screen) (best int, reached bool) {
	best = -1
	var fastest time.Duration
	for i := range screens {
		s := &screens[i]
		switch {
		case s.precision() < r.Target:
		case best < 0:
			best, fastest = i, r.time(s)
		case float64(r.time(s)) <= sameTime*float64(fastest) && s.precision() > screens[best].precision():
			best = i
		}
	}
	if best >= 0 {
		return best, true
	}
	best = 0
	for i := range screens {
		if screens[i].precision() > screens[best].precision() {
			best = i
		}
	}
	return best, false
}
