package softmax

// ShareAll has scans of all sizes shared among threads until restore is called.
func ShareAll() (restore func()) {
	was := minShared
	minShared = 0
	return func() { minShared = was }
}
