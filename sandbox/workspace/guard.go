package workspace

import (
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Every is how often a Guard is to be asked while something runs.
const Every = 2 * time.Second

// maxStrikes is how many commands may end having made a workspace larger that held too much already.
const maxStrikes = 3

// Guard keeps one workspace within its limits. Its methods may be called at the same time.
type Guard struct {
	mu      sync.Mutex
	limits  sandbox.Limits
	dir     func() string
	over    error     // limit_exceeded while the workspace holds too much
	crossed bool      // it does since the command that has not ended yet
	last    Usage     // what it held when the last command had ended, or less
	least   Usage     // what it held at the least since it holds too much
	strikes int       // commands that made it larger since then
	seen    time.Time // the last measurement; zero where there was none
}

// NewGuard guards the folder that dir names at each look. Limits that are zero have their defaults.
func NewGuard(dir func() string, limits sandbox.Limits) *Guard {
	return &Guard{dir: dir, limits: limits.WorkspaceDefaults()}
}

// Admit says whether a command may start. Errors: limit_exceeded.
func (g *Guard) Admit() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The end of the last command has just been looked at, in most cases.
	if g.over == nil && time.Since(g.seen) < Every {
		return nil
	}
	u := g.measure()
	if g.over != nil && g.crossed { // files have come in from outside
		g.cross(u)
	}
	if g.over == nil || g.strikes < maxStrikes {
		return nil
	}
	return schemas.Errorf(schemas.CodeLimitExceeded, "%s, and the last %d commands made it larger still: no more are started in it until files are removed on the worker: %s",
		g.over, g.strikes, raise)
}

// Look says whether what runs has to end: it has made the workspace hold too much, or more where it did already. Errors:
// limit_exceeded.
func (g *Guard) Look() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.over != nil
	u := g.measure()
	if g.over == nil || was && !g.crossed && !u.exceeds(g.last) {
		return nil
	}
	return g.refuse()
}

// Ended looks after a command has ended, and says whether it left the workspace with too much in it, or with more where it held
// too much already. Errors: limit_exceeded.
func (g *Guard) Ended() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.measure()
	switch {
	case g.over == nil:
		return nil
	case g.crossed:
		g.cross(u)
	case u.exceeds(g.last):
		g.strikes++
		g.last = u
	default:
		return nil
	}
	return g.refuse()
}

// cross notes what a workspace holds that has come to hold too much. mu is held.
func (g *Guard) cross(u Usage) { g.crossed, g.last, g.least = false, u, u }

// raise tells how to get a larger workspace.
const raise = "commands that remove files are let through; larger limits are set where the worker is started, by --workspace-bytes, --workspace-files and --file-bytes"

func (g *Guard) refuse() error {
	return schemas.Errorf(schemas.CodeLimitExceeded, "%s: %s", g.over, raise)
}

// measure looks at the workspace and notes where it stands. mu is held.
func (g *Guard) measure() Usage {
	u, err := Measure(g.dir())
	g.seen = time.Now()
	was := g.over != nil
	if g.over = err; err == nil {
		g.over = g.past(u)
	}
	switch {
	case g.over == nil:
		g.crossed, g.strikes = false, 0
	case !was:
		g.cross(u)
		g.crossed, g.strikes = true, 0
	default:
		if u.below(g.last) {
			g.last = u
		}
		if u.below(g.least) { // on its way down
			g.least, g.strikes = u, 0
		}
	}
	return u
}

// past says which limit is exceeded; nil for none.
func (g *Guard) past(u Usage) error {
	for _, l := range []struct {
		what      string
		has, most int64
	}{
		{"the workspace holds %d bytes, and may hold %d", u.Bytes, g.limits.WorkspaceBytes},
		{"the workspace holds %d files and folders, and may hold %d", u.Files, g.limits.WorkspaceFiles},
		{"the workspace holds a file of %d bytes, and may hold none over %d", u.Largest, g.limits.FileBytes},
	} {
		if l.has > l.most {
			return schemas.Errorf(schemas.CodeLimitExceeded, l.what, l.has, l.most)
		}
	}
	return nil
}

// below says whether it is less in one way, and more in none.
func (u Usage) below(other Usage) bool { return other.exceeds(u) && !u.exceeds(other) }

// exceeds says whether it is more in any way.
func (u Usage) exceeds(other Usage) bool {
	return u.Bytes > other.Bytes || u.Files > other.Files
}
