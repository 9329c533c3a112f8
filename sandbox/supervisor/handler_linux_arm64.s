#include "textflag.h"

// The link register leads back to where the signal came.
TEXT nothing<>(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func handler() uintptr
TEXT ·handler(SB), NOSPLIT, $0-8
	MOVD	$nothing<>(SB), R0
	MOVD	R0, ret+0(FP)
	RET
