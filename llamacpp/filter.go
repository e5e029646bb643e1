//go:build !purego && ((amd64 && !windows) || arm64)

package llamacpp

// ggml asks about every node of a graph, 160 of them for 5 layers, and a callback into Go takes
// 300 ns. The filter, in assembly with the calling convention of C, answers for all nodes whose
// names do not begin with "result_n" or "result_o".
var filterAddress uintptr

func throughFilter(uintptr) uintptr { return filterAddress }
