package kernels_test

import (
	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

func init() {
	kernels.NewInt8Rows, kernels.NewInt8And4Rows = encode.NewInt8Rows, encode.NewInt8And4Rows
	kernels.NewPanels, kernels.Round4 = encode.NewPanels, encode.Round4
	kernels.Blocks, kernels.NewBlockCopies, kernels.BlockBytes = encode.NewBlockRows, encode.NewBlockCopies, encode.BlockBytes
	kernels.PutCode7, kernels.PackCodes2, kernels.PackLine2, kernels.PutPacked = encode.PutCode7, encode.PackCodes2, encode.PackLine2, encode.PutPacked
	kernels.Dot, kernels.Scan, kernels.GatherDot, kernels.ArgmaxDot = floats.Dot, floats.Scan, floats.GatherDot, floats.ArgmaxDot
	kernels.TopK, kernels.Axpy = floats.TopK, floats.Axpy
}
