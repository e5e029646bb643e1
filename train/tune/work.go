package tune

// workOf estimates the work of a form.
func (r *run) workOf(f Form) float64 {
	o := r.optionsOf(f)
	return o.Work(len(r.contexts)/r.layer.Dim(), r.layer.Labels(), r.layer.Dim())
}

// plan estimates the work of all forms, and of the refinements of one that is not known
// yet.
func (r *run) plan() {
	for _, f := range r.Forms {
		r.ahead = append(r.ahead, r.workOf(f))
		if !r.Refine {
			continue
		}
		for i, refined := range refinements(f, r.budgets[len(r.budgets)/2], &r.Train) {
			if i == len(r.refinable) {
				r.refinable = append(r.refinable, 0)
			}
			r.refinable[i] += r.workOf(refined) / float64(len(r.Forms))
		}
	}
}

// step says how far the run is after the form that comes first.
func (r *run) step() Step {
	r.tried++
	r.work += r.ahead[0]
	r.ahead = r.ahead[1:]
	left := 0.0
	for _, w := range r.ahead {
		left += w
	}
	for _, w := range r.refinable {
		left += w
	}
	return Step{r.tried, r.tried + len(r.ahead) + len(r.refinable), r.work / (r.work + left)}
}
