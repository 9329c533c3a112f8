package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/state"
)

// standIn finds what stands in for a damaged state.
type standIn struct{ *operation }

// find returns what is known of the workspace without its state, which is damaged: what this folder knows from its last sync, the
// newest version, or, in the plain layout, the files under their own paths. It never is an empty workspace, and has the layout
// of the damaged state.
func (o standIn) find(ctx context.Context, cause error) (in *state.State, err error) {
	known, whole := &o.index.Base, o.index.Whole
	o.indexValid = false
	if in, err = o.newestVersion(ctx); err != nil {
		return nil, err
	}
	from := "the files under their own paths stand"
	switch {
	case whole && known.ID != "" && known.Layout == state.Packed && (in == nil || known.ID >= in.ID):
		o.note("the store's state was damaged: version " + known.ID + ", which this folder knows, stands in for it")
		return known, nil
	case in == nil:
		if in, err = o.adoptPlain(ctx, cause); err != nil {
			return nil, err
		}
		base := state.State{}
		if whole { // what has no file now was not deleted by anyone
			base = *known
			base.Nodes = slices.DeleteFunc(slices.Clone(known.Nodes), func(n state.Node) bool { _, ok := in.Search(n.Path); return !ok })
		}
		o.forgetBase(base)
	default:
		from = "version " + in.ID + " stands"
		if known.ID > in.ID {
			o.forgetBase(*in) // it is older than the folder, and must not undo what has changed since
		}
	}
	o.note("the store's state was damaged: " + from + " in for it; what was pushed later is back once a folder that has it pushes")
	return in, nil
}

// newestVersion returns the newest version that can be read, nil where there is none.
func (o standIn) newestVersion(ctx context.Context) (*state.State, error) {
	all, err := o.storedVersions(ctx)
	for _, v := range slices.Backward(all) {
		version, err := o.loadVersion(ctx, v.id)
		if !errors.Is(err, schemas.ErrDamaged) {
			return version, err
		}
		o.note(fmt.Sprintf("version %s is damaged", v.id))
	}
	return nil, err
}

// adoptPlain makes a state of the files in a store of the plain layout, with what this folder knows of them beside their content.
// Errors: cause where the layout is another, or there are no files.
func (o standIn) adoptPlain(ctx context.Context, cause error) (*state.State, error) {
	for info, err := range o.cfg.Store.List(ctx, state.ObjectPrefix) {
		if err != nil {
			return nil, err
		}
		if !strings.Contains(info.Key[len(state.ObjectPrefix):], "-") { // an object of the packed layout: see state.Object.Key
			return nil, cause
		}
	}
	files, err := plain.Adopt(ctx, o.cfg.Store, o.cfg.Limits, &o.index.Base)
	if err == nil {
		err = plain.Checksums(ctx, o.cfg.Store, files, nil)
	}
	if err != nil {
		return nil, err
	}
	if len(files.Nodes) == 0 {
		return nil, cause
	}
	known := &o.index.Base
	files.ID, files.Count, files.Generation = known.ID, known.Count, known.Generation
	var more []state.Node
	folders := map[string]bool{"": true}
	for _, n := range known.Nodes {
		n.At = state.Location{}
		at, exists := files.Search(n.Path)
		switch {
		case exists && state.SameContent(&files.Nodes[at], &n):
			files.Nodes[at] = n
		case !exists && n.Kind != state.File && folders[state.Parent(n.Path)]:
			more = append(more, n)
		default:
			continue
		}
		folders[n.Path] = n.Kind == state.Dir
	}
	files.Nodes = append(files.Nodes, more...)
	state.SortNodes(files.Nodes)
	return files, nil
}

// keepDamaged keeps a damaged state before it is replaced, for a person to look at.
func keepDamaged(ctx context.Context, cfg *Config, was *snapshot) error {
	key := state.DamagedPrefix + state.NewID(cfg.Now(), "")
	_, err := cfg.Store.Put(ctx, key, objectstore.Bytes(was.damaged), objectstore.Condition{})
	return err
}
