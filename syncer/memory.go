package syncer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// The names of what a sync keeps in the root beside the state file, and of what it has there only while it runs.
const (
	indexName  = ReservedName + ".index"
	tempPrefix = ReservedName + ".tmp-"
)

const maxIndex = 1 << 30

// loadIndex reads what is known of the last sync. The index counts only while the state file is the one it was
// written with: another tool may have written that since, and the documented file is the one that is right.
func (x *session) loadIndex() error {
	x.index = &index{}
	st, err := x.statState()
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	data, err := readSmall(x.root, indexName, maxIndex)
	if err == nil {
		if known, err := decodeIndex(data); err == nil {
			x.index = known
			if !missing && known.stateFile == st {
				x.indexed = true
			} else {
				// Its stats still say what the files hold; what was synced is for the state file to say.
				x.index = &index{seen: known.seen}
			}
		}
	}
	if !x.indexed && !missing {
		if err := x.loadState(); err != nil {
			return err
		}
	}
	if x.index.remote != x.cfg.Remote && x.index.remote != "" {
		x.index = &index{seen: x.index.seen}
		x.indexed = false
	}
	return nil
}

func (x *session) statState() (stat, error) {
	f, st, _, err := openLocal(x.root, stateKey)
	if err != nil {
		return stat{}, err
	}
	return st, f.Close()
}

// loadState takes the base from the state file. A corrupt one is as good as none: nothing is deleted or overwritten
// for it, since every path that differs between the sides is then one that changed on both.
func (x *session) loadState() error {
	data, err := readSmall(x.root, stateKey, x.cfg.Limits.StateBytes)
	if err != nil {
		return err
	}
	state, err := DecodeState(data, x.cfg.Limits)
	if errors.Is(err, ErrCorrupt) {
		x.report.Notes = append(x.report.Notes, "the local state file was corrupt and is made anew")
		return nil
	}
	if err != nil {
		return err
	}
	for i := range state.Nodes {
		state.Nodes[i].At = Location{}
	}
	state.Objects = nil
	x.index.base, x.index.remote = *state, state.Remote
	return nil
}

// remember writes the state file and the index after an operation. base makes what both sides have in common out of
// the plan and the store's tree. Nothing is written when nothing is new.
func (x *session) remember(l *local, state *State, token string, steps []Step,
	base func(steps []Step, now []Node) ([]Node, bool)) error {
	if x.indexed && state == &x.index.base && token == x.index.token && l.reused == len(x.index.seen) &&
		l.reused == x.report.Files && inSync(steps) {
		return nil
	}
	next := &index{remote: x.cfg.Remote, token: token, base: *state}
	next.base.Nodes, next.whole = base(steps, state.Nodes)
	next.whole = next.whole && state.settled() // else what is left to do is to be read again
	next.base.Pending, next.base.Dropping = nil, nil
	if !next.whole {
		next.base.Objects = nil
		for i := range next.base.Nodes {
			next.base.Nodes[i].At = Location{}
		}
	}
	next.base.Remote = ""
	return x.save(l, next)
}

func inSync(steps []Step) bool {
	for i := range steps {
		if steps[i].Do != InSync {
			return false
		}
	}
	return true
}

// save writes the state file, then the index that fits it. Should a crash of the machine undo the renames, the older
// two fit one another as well, and say less than is true, which costs time alone.
func (x *session) save(l *local, next *index) error {
	portable := next.base
	portable.Remote, portable.Objects = x.cfg.Remote, nil
	portable.Nodes = make([]Node, len(next.base.Nodes))
	for i := range portable.Nodes {
		portable.Nodes[i] = next.base.Nodes[i]
		portable.Nodes[i].At = Location{}
	}
	skew, err := x.replace(stateKey, portable.Encode(), true)
	if err != nil {
		return err
	}
	if next.stateFile, err = x.statState(); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	next.seen = l.memory(x.looked.UnixNano() + skew)
	share(next)
	_, err = x.replace(indexName, next.encode(), false)
	return err
}

// share lets the seen files point at the base's nodes where those say the same, which is what the index stores
// compactly.
func share(x *index) {
	at := 0
	for i := range x.seen {
		s := &x.seen[i]
		for at < len(x.base.Nodes) && comparePaths(x.base.Nodes[at].Path, s.node.Path) < 0 {
			at++
		}
		if at < len(x.base.Nodes) && x.base.Nodes[at].Path == s.node.Path && same(&x.base.Nodes[at], s.node) {
			s.node = &x.base.Nodes[at]
		}
	}
}

// replace puts a file of Sluice's own in the root, whole or not at all. skew is how far the file system's clock is
// ahead of this machine's, which for a network file system may be a lot.
func (x *session) replace(name string, data []byte, durable bool) (skew int64, err error) {
	temp := tempName()
	f, err := x.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	st, _, _, err := statFile(f)
	if err == nil {
		skew = st.Mtime - time.Now().UnixNano()
		_, err = f.Write(data)
	}
	if err == nil && durable {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = x.root.Rename(temp, name)
	}
	if err != nil {
		err = errors.Join(err, x.root.Remove(temp))
		return 0, writeError(name, joined(err))
	}
	return skew, nil
}

func tempName() string { return tempPrefix + randomName() }

// randomName is a name that nobody else has.
func randomName() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails: see crypto/rand
	return hex.EncodeToString(random[:])
}
