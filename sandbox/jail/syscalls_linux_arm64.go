package jail

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// legacy are calls that this architecture knows by names of its own.
var legacy = []int{unix.SYS_FSTATAT}

var (
	legacyModes [][2]int
	legacyOpens [][3]int
)
