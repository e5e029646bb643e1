package train

// Work estimates the work of a run on that many contexts of a layer, without the labels
// and a tail, in products of two numbers. It only says how much longer one run takes than
// another: the time of runs that are done says the rest.
func (o *Options) Work(contexts, labels, dim int) float64 {
	const (
		// exact is how many products of the search for clusters take as long as one of
		// the geometry, which is in float64.
		exact = 5
		// step is how many searches for the cluster of a context take as long as a step
		// of learning with it.
		step = 3
	)
	n := float64(contexts)
	vectors := float64(o.Clusters) // that find the cluster of a context
	if o.Groups > 0 && o.Overlap == 0 {
		vectors = float64(o.Groups) + float64(o.Clusters)/float64(o.Groups)
	}
	searches := float64(o.KMeansIterations)
	if o.learns() {
		searches += float64(o.Iterations) * (1 + float64(step*o.EpochFraction))
	}
	if o.Spread > 0 {
		searches += 2
	}
	if o.ProbeShare > 0 {
		searches += 2
	}
	products := float64(n*vectors) * searches
	if o.Overlap > 0 {
		products += float64(n*float64(o.Groups)) * float64(o.KMeansIterations+groupOptions(o, contexts).Iterations)
	}
	if o.Geometry > 0 {
		parts := o.Clusters
		if n := len(o.Shells); n > 0 { // the clusters in each shell too
			parts *= 2 + n
		}
		shares := float64(parts*min(geometryPlausible, labels)) * geometrySample
		geometry := exact * (shares + float64(geometryPooled*float64(labels)))
		if products += geometry; o.Measure { // without the held-out contexts too
			products += geometry
		}
	}
	return products * float64(dim)
}
