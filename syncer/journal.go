package syncer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// journalName is the file that lists, while a pull changes the folder, what it does there.
const journalName = state.ReservedName + ".journal"

// journal is what a pull is about to do in the folder.
type journal struct {
	Version string `json:"version"`
	// From is the ID of the base before the pull; earlier versions did not write it. Where the folder has another base by now, a sync that
	// knew nothing of the journal, as one without the same OwnDir, has gone on since.
	From *string `json:"from,omitempty"`
	// Swapped are the paths that are removed to put another kind of thing in their place. Between the two such a path is missing,
	// and would look as if the user had deleted it.
	Swapped [][]byte `json:"swapped"`
	Moves   []move   `json:"moves"`
	Modes   [][]byte `json:"modes"` // paths that get another mode
}

// move is the rename of a staged path.
type move struct {
	At     []byte `json:"at"`
	Staged string `json:"staged,omitempty"` // "" once it is known to have taken place
	Inode  uint64 `json:"inode,omitempty"`
}

// done reports whether the rename has taken place: the path has what was staged, or the stage no longer does.
func (m *move) done(in *worktree.Folders) bool {
	if m.Staged == "" {
		return true
	}
	if now, err := in.Stat(string(m.At)); err == nil && now.Inode == m.Inode {
		return true
	}
	if _, err := in.Stat(state.Parent(m.Staged)); err != nil {
		return false
	}
	staged, err := in.Stat(m.Staged)
	return errors.Is(err, fs.ErrNotExist) || err == nil && staged.Inode != m.Inode
}

// newJournal writes down what a pull of a version is about to do.
func newJournal(root, own *os.Root, from, version string, c *changes, moves []packed.Target) (j *journal, err error) {
	j = &journal{Version: version, From: &from}
	for _, n := range c.swapped {
		j.Swapped = append(j.Swapped, []byte(n.Path))
	}
	for _, n := range c.chmod {
		j.Modes = append(j.Modes, []byte(n.Path))
	}
	folders := worktree.NewFolders(root)
	defer func() { err = errors.Join(err, folders.Close()) }()
	for _, m := range moves {
		st, err := folders.Stat(m.Path)
		if err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
		j.Moves = append(j.Moves, move{At: []byte(m.Node.Path), Staged: m.Path, Inode: st.Inode})
	}
	return j, j.write(own)
}

func (j *journal) write(own *os.Root) error {
	data, err := json.Marshal(j)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	_, err = worktree.ReplaceFile(own, journalName, data, true)
	return err
}

const (
	maxJournal = 128 << 20 // bytes
	// minJournalled is the fewest bytes that an element of a journal has: shorter ones would take much more memory.
	minJournalled = 6
)

// readJournal reads the journal of an interrupted pull, nil where there is none.
func readJournal(root *os.Root, limits state.Limits) (*journal, error) {
	data, err := worktree.ReadOwn(root, journalName, min(maxJournal, limits.StateBytes))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	j := &journal{}
	if values := bytes.Count(data, []byte{','}); err == nil && (values > 4*limits.Entries || values*minJournalled > len(data)+1024) {
		err = schemas.Errorf(schemas.CodeTooLarge, "%d values in %d bytes", values, len(data))
	}
	if err == nil && json.Unmarshal(data, j) != nil {
		err = json.Unmarshal(data, &j.Swapped) // as earlier versions wrote it
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: reading %s of an interrupted pull: %w", journalName, err)
	}
	return j, nil
}

// keepDone drops the renames that have not taken place, and writes that down, before the stage goes.
func (j *journal) keepDone(root, own *os.Root) error {
	if !slices.ContainsFunc(j.Moves, func(m move) bool { return m.Staged != "" }) {
		return nil
	}
	folders := worktree.NewFolders(root)
	j.Moves = slices.DeleteFunc(j.Moves, func(m move) bool { return !m.done(folders) })
	for i := range j.Moves {
		j.Moves[i] = move{At: j.Moves[i].At}
	}
	return errors.Join(folders.Close(), j.write(own))
}

// outdated reports that the folder has gone on since: it has neither the base from which the pull began, nor the one it was to leave, nor none.
// What the pull has installed is then in the base; what it has removed may still be missing, since a push leaves that as it is.
func (j *journal) outdated(base string) bool {
	return j.From != nil && base != "" && base != *j.From && base != j.Version
}

// installed returns the test whether a path was renamed out of the stage, by itself or with a folder above it.
func (j *journal) installed() func(path string) bool {
	tops := make(map[string]bool, len(j.Moves))
	for _, m := range j.Moves {
		tops[string(m.At)] = true
	}
	return func(path string) bool {
		for ; path != ""; path = state.Parent(path) {
			if tops[path] {
				return true
			}
		}
		return false
	}
}

// adopt puts what a pull has installed into a base. pulled is the base that it meant to leave.
func (j *journal) adopt(t *worktree.Tree, base, pulled state.State) state.State {
	installed := j.installed()
	base.Nodes = slices.DeleteFunc(slices.Clone(base.Nodes), func(n state.Node) bool { return installed(n.Path) })
	for _, n := range pulled.Nodes {
		if installed(n.Path) {
			base.Nodes = append(base.Nodes, n)
		}
	}
	state.SortNodes(base.Nodes)
	for _, p := range j.Modes {
		l, here := t.Search(string(p))
		b, known := base.Search(string(p))
		r, meant := pulled.Search(string(p))
		if here && known && meant && t.Nodes[l].Mode == pulled.Nodes[r].Mode {
			base.Nodes[b].Mode = pulled.Nodes[r].Mode
		}
	}
	return base
}

// restore puts into the tree what a pull has removed to put another kind of thing in its place, as it was at the last sync.
func (j *journal) restore(t *worktree.Tree, base *state.State) {
	installed := j.installed()
	for _, p := range j.Swapped {
		at, exists := t.Search(string(p))
		was, known := base.Search(string(p))
		if exists || !known || installed(string(p)) {
			continue
		}
		n := base.Nodes[was]
		t.Nodes = slices.Insert(t.Nodes, at, &n)
		t.Stats = slices.Insert(t.Stats, at, worktree.Stat{})
	}
}

// recovery keeps the journal of a pull, and takes up that of an interrupted one.
type recovery struct{ *operation }

// begin writes down the base that the folder has after an install, and what that is about to do.
func (o recovery) begin(c *changes, moves []packed.Target, base *state.State) (err error) {
	if err = o.file.prepare(pullingName, base); err == nil {
		o.journal, err = newJournal(o.root, o.own, o.index.Base.ID, base.ID, c, moves)
	}
	return err
}

// recover takes what an interrupted pull has done into the base and the tree.
func (o recovery) recover(t *worktree.Tree) error {
	if o.journal == nil {
		return nil
	}
	pulled, ok, err := o.file.readPrepared(pullingName)
	if err != nil {
		return err
	}
	base := o.index.Base.ID
	if ok && pulled.ID == o.journal.Version && pulled.ID != base && !o.journal.outdated(base) { // it is earlier in a pull of an earlier version
		o.forgetBase(o.journal.adopt(t, o.index.Base, *pulled))
		if _, err := o.file.replace(&o.index.Base); err != nil { // another pull replaces the journal
			return err
		}
		if err := removeOwn(o.own, pullingName); err != nil { // the base has it, and may go on from there
			return err
		}
	}
	o.journal.restore(t, &o.index.Base)
	return nil
}

// end removes what a pull that is complete has written down.
func (o recovery) end() error {
	if o.journal == nil {
		return nil
	}
	return errors.Join(removeOwn(o.own, journalName), removeOwn(o.own, pullingName))
}
