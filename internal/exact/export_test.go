package exact

// ShareAll has scans of all sizes shared among threads until restore is called.
func ShareAll() (restore func()) {
	was := minShared
	minShared = 0
	return func() { minShared = was }
}

// SetTile changes the bytes of a tile, of which each then has 16 rows at least, until restore is called.
func SetTile(bytes int) (restore func()) {
	wasBytes, wasLeast := tileBytes, minTile
	tileBytes, minTile = bytes, 16
	return func() { tileBytes, minTile = wasBytes, wasLeast }
}

// Short is the short way of Find alone.
func (s *Searcher) Short(dst []Prediction, a *Answer, q *Query, req *Request) bool {
	return s.short(dst, a, q, req)
}
