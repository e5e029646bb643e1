package kernels

// Package encode, which imports this one, makes the codes of these tests: encode_test.go sets the
// variables to its functions.
var (
	NewInt8Rows     func(data []byte, rows Rows, bias []float32) (*Int8Rows, error)
	NewInt8And4Rows func(data8, data4 []byte, rows Rows, bias []float32) (*Int8Rows, *Int4Rows, error)
	NewPanels       func(m *Int8Rows, data []byte, ids []uint32, starts []int) (*Int8Panels, error)
	Blocks          func(rows Rows, bias []float32) (*BlockRows, error)
	NewBlockCopies    func(data []byte, rows Rows, bias []float32) (*BlockRows, error)
	BlockBytes      func(dim int) int
	Round4          func(rows []float32, dim int)
)
