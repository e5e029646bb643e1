package tune

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/train"
)

// Form is a shape of clusters with the other options that belong to it. A new form
// needs a function that returns it, and a place in [Forms] or in refinements.
type Form struct {
	// Name is unique to the form. It is a part of messages and of the names of files.
	Name string
	// Set sets the options that make the form.
	Set func(o *train.Options)
}

// Flat is a number of clusters on one level.
func Flat(clusters int) Form {
	return Form{fmt.Sprint(clusters), func(o *train.Options) { o.Groups, o.Overlap, o.Clusters = 0, 0, clusters }}
}

// Levels is a number of groups with that many clusters each.
func Levels(groups, clusters int) Form {
	return Form{fmt.Sprintf("%dx%d", groups, clusters), func(o *train.Options) { o.SetLevels(groups, clusters) }}
}

// Overlapping is a number of clusters found through that many groups, whose lists of
// clusters overlap.
func Overlapping(clusters, groups int) Form {
	return Form{fmt.Sprintf("%d-through-%d", clusters, groups), func(o *train.Options) { o.SetOverlap(clusters, groups) }}
}

// Probing is the form with a second probe for that share of the contexts.
func (f Form) Probing(share float64) Form {
	return Form{f.Name + "-probe", func(o *train.Options) {
		f.Set(o)
		o.ProbeShare = share
	}}
}

// Shelled is the form with clusters that are cut into shells beyond these shares of the
// contexts.
func (f Form) Shelled(shares ...float64) Form {
	return Form{f.Name + "-shells", func(o *train.Options) {
		f.Set(o)
		o.Shells = shares
	}}
}

// Learned is the form with clusters that are learned for the budget.
func (f Form) Learned(budget float64) Form {
	return Form{f.Name + "-learned", func(o *train.Options) {
		f.Set(o)
		o.KMeansOnly, o.Budget = false, budget
	}}
}

// refinedProbes is the share of the contexts for which a refined form looks at two
// clusters: the share in train/RESULTS.md that does best.
const refinedProbes = 0.6

// The shares of the contexts beyond the shells of a refined form, likewise.
const beyondFirst, beyondSecond = 0.4, 0.1

// refinements returns what is tried with the best form, which was chosen at this
// budget. Each takes longer than the form: it looks for two clusters, has more sets, or
// learns.
func refinements(f Form, budget float64, base *train.Options) (forms []Form) {
	if base.ProbeShare == 0 {
		forms = append(forms, f.Probing(refinedProbes))
	}
	if len(base.Shells) == 0 && base.Geometry > 0 {
		forms = append(forms, f.Shelled(beyondFirst, beyondSecond))
	}
	if base.Iterations > 0 {
		forms = append(forms, f.Learned(budget))
	}
	return forms
}

// Forms returns the forms to try with that many contexts of training: flat ones, two
// levels about as fine as [train.ClustersFor] says, and groups that overlap. A cluster has
// at least 20 contexts on average, unless there is one cluster alone.
func Forms(contexts int) []Form {
	const least = 20
	var forms []Form
	for _, clusters := range []int{64, 128, 256} {
		if clusters*least <= contexts {
			forms = append(forms, Flat(clusters))
		}
	}
	for _, side := range []int{16, 24, 32, 48} {
		if side*side*least <= contexts {
			forms = append(forms, Levels(side, side))
		}
	}
	if clusters, groups := 512, 32; clusters*least <= contexts {
		forms = append(forms, Overlapping(clusters, groups))
	}
	if len(forms) == 0 {
		forms = append(forms, Flat(max(1, contexts/least)))
	}
	return forms
}

// Budgets returns the budgets to try for a layer of that many labels, ascending: from a
// sixth of [train.BudgetFor] to five times that, each a quarter more than the one
// before; at least least, and at most labels.
func Budgets(labels, least int) []float64 {
	middle := train.BudgetFor(labels, 1)
	var budgets []float64
	for b := middle / 6; b <= 5*middle; b *= 1.25 {
		budgets = append(budgets, min(max(math.Round(b), float64(least)), float64(max(labels, least))))
	}
	if len(budgets) == 0 {
		budgets = []float64{float64(least)}
	}
	return slices.Compact(budgets)
}
