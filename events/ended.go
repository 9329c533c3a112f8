package events

import (
	"cmp"
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// Ended passes the processes that match and have ended to fn, the last one first, until fn reports false. It leaves out those that run
// again, that ended at or after a sequence of EVT (0 for none), and that are cleaned up. Errors: unavailable, deadline_exceeded.
func (r *Reader) Ended(ctx context.Context, f Filter, before uint64, running []schemas.ProcessInfo, fn func(schemas.ProcessInfo) (more bool)) error {
	seen, through := make(map[string]bool), make(map[string]uint64)
	for _, p := range running {
		seen[p.Process] = true
	}
	// A list of all threads from the end of EVT meets each mark before the records that it hides.
	lookUp := f.Thread != "" || before > 0
	var failed error
	err := r.RecordsBefore(ctx, f, before, func(ev *schemas.Event) bool {
		if ev.Type == schemas.TypeProcessesCleaned {
			through[ev.Thread] = max(through[ev.Thread], cleanedThrough(ev))
			return true
		}
		if _, known := through[ev.Thread]; lookUp && !known {
			if through[ev.Thread], failed = r.cleaned(ctx, f.tenant(), ev.Thread); failed != nil {
				return false
			}
		}
		if ev.Seq <= through[ev.Thread] {
			return f.Thread == ""
		}
		newest := !seen[ev.Process]
		seen[ev.Process] = true // an earlier record is of an earlier run, or of its begin
		if newest && ev.Type.Terminal() {
			// A later version may have written it in another form.
			if p, err := schemas.EndedProcess(ev); err == nil && !p.AutoCleanup {
				return fn(p)
			}
		}
		return true
	})
	return cmp.Or(failed, err)
}
