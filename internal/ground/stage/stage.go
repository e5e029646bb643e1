// Package stage names the stages of a run of training, as its reports of progress have them, and
// the files that keep the state of a run.
package stage

// The stages of a run, in their order.
const (
	Labels  = "labels"  // exact top-k of the full layer for every context
	KMeans  = "k-means" // spherical k-means
	Learn   = "learn"   // gradient descent on V
	Assign  = "assign"  // clusters of all contexts
	Measure = "measure" // lists without the held-out contexts, to decide and to measure
	Lists   = "lists"   // lists of all contexts
	Tail    = "tail"    // the weight of the labels outside the candidates
)

// All returns the stages of a run in their order. A run may come back to Assign.
func All() []string {
	return []string{Labels, KMeans, Learn, Assign, Measure, Lists, Tail}
}

// Files returns the names of the files in which a run keeps its state, if its option Checkpoint is
// path. Some of them may be missing.
func Files(path string) []string { return []string{path, path + "-labels"} }
