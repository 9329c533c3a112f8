package syncer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
)

// journalName is the file that says, while a pull is at it, which paths it removes to put another kind of thing in
// their place. Between the two such a path is missing, and without the journal an interrupted pull would look as if
// somebody had deleted it.
const journalName = ReservedName + ".journal"

func (x *session) announce(swapped []*Node) error {
	if len(swapped) == 0 {
		return nil
	}
	paths := make([][]byte, len(swapped))
	for i, n := range swapped {
		paths[i] = []byte(n.Path)
	}
	data, err := json.Marshal(paths)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	x.resumed = true
	_, err = x.replace(journalName, data, true)
	return err
}

// resume puts the paths that an interrupted pull has removed back into the scan as they were at the last sync.
func (x *session) resume(l *local) error {
	data, err := readSmall(x.root, journalName, x.cfg.Limits.StateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var paths [][]byte
	if err == nil {
		err = json.Unmarshal(data, &paths)
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: reading what an interrupted pull was at: %w", err)
	}
	x.resumed = true
	for _, p := range paths {
		at, there := slices.BinarySearchFunc(l.nodes, string(p), func(n *Node, p string) int { return comparePaths(n.Path, p) })
		base, known := x.index.base.search(string(p))
		if there || !known {
			continue
		}
		n := x.index.base.Nodes[base]
		l.nodes = slices.Insert(l.nodes, at, &n)
		l.stats = slices.Insert(l.stats, at, stat{})
	}
	return nil
}

// forget ends what announce began.
func (x *session) forget() error {
	if !x.resumed {
		return nil
	}
	if err := x.root.Remove(journalName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return nil
}
