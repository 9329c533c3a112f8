package workspace

import (
	"github.com/sluice-dev/sluice/internal/projectquota"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// A hard limit leaves room above the limit that is measured: an eighth of it, and no less than this. What is measured thereby decides on
// every file system in the same way, and the hard limit ends what writes faster than it is measured.
const (
	hardLimitShare    = 8
	leastSpareBytes   = 64 << 20
	leastSpareEntries = 1024
)

// SetHardLimit gives a new workspace a hard limit somewhat above the limits that are measured, where its file system has one; see package
// projectquota. Beyond it writes fail. Errors: unavailable.
func SetHardLimit(dir string, limits sandbox.Limits) error {
	limits = limits.WorkspaceDefaults()
	if err := projectquota.Set(dir, withSpare(limits.WorkspaceBytes, leastSpareBytes), withSpare(limits.WorkspaceFiles, leastSpareEntries)); err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "set the hard limit of the workspace: %w", err)
	}
	return nil
}

// withSpare is the hard limit above a limit; 0 stands for none.
func withSpare(limit, least int64) int64 {
	if limit >= sandbox.NoLimit {
		return 0
	}
	return limit + max(limit/hardLimitShare, least)
}
