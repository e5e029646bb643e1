package softmax

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
