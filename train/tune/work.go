package tune

// The work of a form is estimated in products of two numbers, by what a run of package
// train does with each context and cluster. It only has to say how much longer one form
// takes than another: the time of the forms that are done says the rest.
const (
	// workExact is how many products of the search for clusters take as long as one of
	// the geometry, which is in float64.
	workExact = 5
	// workStep is how many searches for the cluster of a context take as long as a step of
	// learning with it.
	workStep = 3
	// workLabels and workSample bound the labels and contexts of a cluster that its
	// geometry looks at, and workPooled the contexts of the variance over all clusters.
	workLabels, workSample, workPooled = 2048, 64, 512
	// workGroups is the number of alternations that find groups that overlap.
	workGroups = 25
)

// workOf estimates the work of a form.
func (r *run) workOf(f Form) float64 {
	o := r.optionsOf(f)
	d, labels := float64(r.layer.Dim()), float64(r.layer.Labels())
	n := float64(len(r.contexts)) / d
	vectors := float64(o.Clusters) // that find the cluster of a context
	if o.Groups > 0 && o.Overlap == 0 {
		vectors = float64(o.Groups) + float64(o.Clusters)/float64(o.Groups)
	}
	searches := float64(o.KMeansIterations)
	if !o.KMeansOnly {
		searches += float64(o.Iterations) * (1 + float64(workStep*o.EpochFraction))
	}
	if o.Spread > 0 {
		searches += 2
	}
	if o.ProbeShare > 0 {
		searches += 2
	}
	products := float64(n*vectors) * searches
	if o.Overlap > 0 {
		products += float64(n*float64(o.Groups)) * (float64(o.KMeansIterations) + workGroups)
	}
	if o.Geometry > 0 {
		// Twice: without the held-out contexts, and with them.
		products += 2 * workExact * (float64(float64(o.Clusters)*min(workLabels, labels)*workSample) + float64(workPooled*labels))
	}
	return products * d
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
