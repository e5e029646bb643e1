package exact

// ShareAll has scans of all sizes shared among threads until restore is called.
func ShareAll() (restore func()) {
	was := minShared
	minShared = 0
	return func() { minShared = was }
}

// SetTile changes the bytes of a tile, which then has at least 16 rows, until restore is called.
func SetTile(bytes int) (restore func()) {
	wasBytes, wasLeast := tileBytes, minTile
	tileBytes, minTile = bytes, 16
	return func() { tileBytes, minTile = wasBytes, wasLeast }
}

// Short is the short path of Find alone.
func (s *Searcher) Short(dst []Prediction, a *Answer, q *Query, req *Request) bool {
	return s.short(dst, a, q, req, nil)
}

// Ends are the intervals of the first n rows of the list that a short search looked at.
func (q *Query) Ends(n int) (lower, upper []float32) { return q.lower[:n], q.upper[:n] }

// HasCoarse reports whether the layer has codes of 4 bits.
func (l *Layer) HasCoarse() bool { return l.coarse != nil }
