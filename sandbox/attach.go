package sandbox

import (
	"context"
	"time"
)

// ReattachWindow is how long a sandbox whose worker is gone waits for another one, where nothing else is said. Then it ends, with
// everything in it.
const ReattachWindow = 10 * time.Minute

// Reattacher is a Provider whose sandboxes outlive the process that made them.
type Reattacher interface {
	Provider
	// Attach takes over the sandboxes that an earlier process left, killed or by Leave, on the same folder, and that this one has
	// not. What cannot be taken over is ended and removed. It comes before the first Create. Errors: unavailable when it
	// cannot be told what was left; what was, is untouched then.
	Attach(ctx context.Context) ([]Attached, error)
	// Leave gives every sandbox up without ending any, as the death of this process would: for their reattachWindow another one may
	// Attach them. Their processes count as lost here. Close may follow, and ends nothing more.
	Leave() error
}

// Attached is a sandbox that an earlier process made.
type Attached interface {
	Sandbox
	// Spec is what it was made for, or last bound to.
	Spec() Spec
	// SetOwner changes the Spec's Owner. Errors: unavailable when it cannot be stored; the Owner is then as it was.
	SetOwner(mark string) error
	// Held lists the processes it has, running, or ended and not released. Errors: unavailable.
	Held(ctx context.Context) ([]Held, error)
	// Resume takes over a process it holds: its output follows from these offsets of its streams, or from where the sandbox
	// still holds it where that is later. Errors: not_found for a process it does not have, conflict for one that is resumed
	// already, unavailable.
	Resume(ctx context.Context, id string, stdout, stderr int64) (Process, error)
}

// Held is a process that a sandbox holds.
type Held struct {
	// ID is the Command's.
	ID string
	// PID is as Process.PID.
	PID int
	// Ended says that its exit record is there.
	Ended bool
	// Stdout and Stderr are the offsets from which output is held: what Ack was told.
	Stdout, Stderr int64
	// Stdin is how many bytes of standard input the sandbox has got, and StdinClosed that there will be no more: it was closed
	// after them, or the process has ended or reads none.
	Stdin       int64
	StdinClosed bool
	// Started is the supervisor's clock.
	Started time.Time
}
