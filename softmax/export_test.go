package softmax

// ShareAll has scans of all sizes shared among threads until restore is called.
func ShareAll() (restore func()) {
	was := minShared
	minShared = 0
	return func() { minShared = was }
}

// Left are the labels that the view left in the last search, if its answer is from a set.
func (s *Searcher) Left() []uint32 { return s.list }
