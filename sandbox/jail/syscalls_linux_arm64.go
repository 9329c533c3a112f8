package jail

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archCalls are the calls whose names differ on this architecture.
var archCalls = []int{unix.SYS_FSTATAT}

var (
	archModeCalls [][2]int
	archOpenCalls [][3]int
)
