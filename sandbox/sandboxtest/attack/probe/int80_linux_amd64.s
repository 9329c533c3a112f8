#include "textflag.h"

// func int80(number, a uintptr) uintptr
TEXT ·int80(SB), NOSPLIT, $0-24
	MOVQ	number+0(FP), AX
	MOVQ	a+8(FP), BX
	XORQ	CX, CX
	XORQ	DX, DX
	XORQ	SI, SI
	XORQ	DI, DI
	INT	$0x80
	MOVQ	AX, ret+16(FP)
	RET
