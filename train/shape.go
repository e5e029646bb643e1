package train

import "math"

// What [ClustersFor] goes by.
const (
	contextsPerCluster = 100
	leastTwoLevels     = 20000 // contexts
	mostFlat           = 128   // clusters on one level
	leastGroups        = 16
	mostGroups         = 32
	leastToLearn       = 200 // contexts of a cluster
)

// ClustersFor returns the shape of clusters that serves most layers, for that many
// contexts of training: groups and the clusters in each, for [Options.SetLevels], or
// groups 0 and the clusters of a flat screen. A cluster gets a hundred contexts, by
// which its set is chosen; many small clusters are on two levels, since a flat screen
// scans them all.
func ClustersFor(contexts int) (groups, clusters int) {
	if contexts < leastTwoLevels {
		return 0, min(max(contexts/contextsPerCluster, 1), mostFlat)
	}
	side := int(math.Round(math.Sqrt(float64(contexts) / contextsPerCluster)))
	side = min(max(side, leastGroups), mostGroups)
	return side, side
}

// LearningServes reports whether learning is worth its time for a screen of so many
// clusters, with sets from geometry. Learning goes by the labels that the contexts of
// training have, and with few contexts in a cluster that is no gain: on two levels
// k-means had the better sets for other contexts with 98 of them, with 195 the two were
// nearly equal, and from 293 on learning had (RESULTS.md).
func LearningServes(contexts, clusters int) bool { return contexts/clusters >= leastToLearn }

// BudgetFor returns the budget that serves most layers of that many labels: one and a
// half of the square root of their number, which is 150 for 10,000 labels. It is at
// least least, for the k labels and the ids always included, and at most labels.
func BudgetFor(labels, least int) float64 {
	budget := 1.5 * math.Sqrt(float64(labels))
	if budget > 20 {
		budget = 10 * math.Round(budget/10)
	}
	return float64(min(max(int(math.Ceil(budget)), least), max(labels, least)))
}
