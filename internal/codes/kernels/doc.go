// Package kernels holds the inner loops of searches: reference products with rows of any type,
// intervals from int8, 4-bit and block codes, previews, the selection of the best, and log-sum-exp.
// It has the forms, levels and contracts of the public package kernels, which has the
// part that other programs use. Package encode makes the codes; package floats has float32 loops.
//
// # Three arithmetics
//
// The reference kernels (RefDot, Rows.RefScan, Rows.RefGatherDot) define the logit: exact
// products summed in float64 in a fixed order. They give the same bits on every level and every
// architecture. So do Exp, Log, LogSumExp and Softmax, which are float64 too.
//
// The kernels of int8 codes (Int8Rows, Int8Panels) and of blocks (BlockRows) give for each row an
// interval that provably contains the reference logit, from a quarter of the bytes, and the 4-bit
// kernels (Int4Rows) a wider one from an eighth. Their integers are exact and their few float32
// operations are ordered, so they too give the same bits everywhere. So do previews (Scores7,
// Scores2, Lines2), which bound nothing.
//
// Nothing is allocated, except the memory that an [Int8Vector] lacks when it is first used with
// rows of a kind; calls that read it write to that memory.
package kernels
