package kernels

// Functions of packages that import this one: encode makes the codes of these tests, and the loops
// of floats are in the tables of all kernels. hooks_test.go sets the variables.
var (
	NewInt8Rows     func(data []byte, rows Rows, bias []float32) (*Int8Rows, error)
	NewInt8And4Rows func(data8, data4 []byte, rows Rows, bias []float32) (*Int8Rows, *Int4Rows, error)
	NewPanels       func(m *Int8Rows, data []byte, ids []uint32, starts []int) (*Int8Panels, error)
	Blocks          func(rows Rows, bias []float32) (*BlockRows, error)
	NewBlockCopies  func(data []byte, rows Rows, bias []float32) (*BlockRows, error)
	BlockBytes      func(dim int) int
	Round4          func(rows []float32, dim int)
	PutCode7        func(panels []byte, dim, r, j int, number int8)
	PackCodes2      func(row, codes []byte)
	PackLine2       func(row, codes []byte)
	PutPacked       func(panels []byte, r int, row []byte)

	Dot       func(x, y []float32) float32
	Scan      func(dst, rows, bias, h []float32)
	GatherDot func(dst, rows, bias []float32, ids []uint32, h []float32)
	ArgmaxDot func(rows, h []float32) (index int, score float32)
	TopK      func(ids []uint32, vals, scores []float32)
	Axpy      func(dst []float64, a float32, x []float32)
)
