//go:build !purego

#include "textflag.h"

DATA ·filterAddress(SB)/8, $filter<>(SB)
GLOBL ·filterAddress(SB), RODATA, $8

// bool filter(struct ggml_tensor *R0, bool R1, void *R2): no register that the caller wants to
// keep is written, R27 among them, which the assembler takes for addresses of loads.
TEXT filter<>(SB), NOSPLIT|NOFRAME, $0
	ANDW $0xff, R1, R9
	CBZW R9, go
	MOVD $·nameOffset(SB), R9
	MOVD (R9), R9
	MOVD (R0)(R9), R9
	MOVD $0x6e5f746c75736572, R10 // "result_n"
	CMP  R10, R9
	BEQ  go
	MOVD $0x6f5f746c75736572, R10 // "result_o"
	CMP  R10, R9
	BEQ  go
	MOVD ZR, R0
	RET

go:
	MOVD $·goCallback(SB), R9
	MOVD (R9), R9
	JMP  (R9)
