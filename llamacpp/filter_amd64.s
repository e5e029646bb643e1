//go:build !purego && !windows

#include "textflag.h"

DATA ·filterAddress(SB)/8, $filter<>(SB)
GLOBL ·filterAddress(SB), RODATA, $8

// bool filter(struct ggml_tensor *DI, bool SI, void *DX), System V: no register that the caller
// wants to keep is written.
TEXT filter<>(SB), NOSPLIT|NOFRAME, $0
	TESTB SIB, SIB
	JEQ   go
	MOVQ  ·nameOffset(SB), AX
	MOVQ  (DI)(AX*1), AX
	MOVQ  $0x6e5f746c75736572, R10 // "result_n"
	CMPQ  AX, R10
	JEQ   go
	MOVQ  $0x6f5f746c75736572, R10 // "result_o"
	CMPQ  AX, R10
	JEQ   go
	XORL  AX, AX
	RET

go:
	MOVQ ·goCallback(SB), AX
	JMP  AX
