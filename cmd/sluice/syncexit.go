package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// The exit codes of `sluice sync`. It runs no command of the user, so that the low codes are its own.
const (
	exitSyncFailed   = 1 // any other error
	exitSyncUsage    = 2
	exitSyncPartial  = 3 // as restic
	exitSyncConflict = 4
	exitSyncOutage   = 5 // as rclone: the same command may succeed later
	exitSyncDamage   = 6
	exitSyncRefused  = 7
)

const syncExitHelp = `Exit codes: 0 done; 1 failed; 2 wrong usage; 3 partial: all but what could not be read;
4 conflict, or another sync is running; 5 the store cannot be reached: try again; 6 damage;
7 refused by --max-delete; 130 interrupted.`

func syncExit(err error) int {
	switch {
	case errors.Is(err, syncer.ErrPartial):
		return exitSyncPartial
	case errors.Is(err, errManyDeletions):
		return exitSyncRefused
	}
	if e, ok := errors.AsType[*schemas.Error](err); ok && e.Details[syncer.DetailState] != "" {
		return exitSyncFailed // not what the user wrote is wrong
	}
	switch schemas.CodeOf(err) {
	case schemas.CodeInvalidArgument:
		return exitSyncUsage
	case schemas.CodeConflict:
		return exitSyncConflict
	case schemas.CodeUnavailable, schemas.CodeDeadlineExceeded:
		return exitSyncOutage
	case schemas.CodeDamaged:
		return exitSyncDamage
	}
	return exitSyncFailed
}

// isSync reports whether c is `sluice sync` or one of its commands.
func isSync(c *cobra.Command) bool {
	for ; c != nil; c = c.Parent() {
		if c.Name() == syncName {
			return true
		}
	}
	return false
}
