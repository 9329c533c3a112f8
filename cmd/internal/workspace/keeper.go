package workspace

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// Config says how workspaces are carried.
type Config struct {
	// Fence says whether a session is still this worker's: it is asked right before what is stored is changed. Errors: lost. Default:
	// it always is.
	Fence func(ctx context.Context, c schemas.Conversation) error
	// AtOnce is how many pulls and pushes run at the same time; the others wait. Default 4: each opens up to 8 requests and reads the
	// folder with every CPU.
	AtOnce int
}

// Keeper pulls and pushes workspaces. Its methods may be called at the same time.
type Keeper struct {
	cfg    Config
	slots  chan struct{}
	places Places

	mu   sync.Mutex
	busy map[string]*turn
}

var _ hooks.Workspace = (*Keeper)(nil)

// turn lets one operation at a time at a folder.
type turn struct {
	free  chan struct{}
	users int
}

// New is a registry.
func New(cfg Config) *Keeper {
	if cfg.AtOnce <= 0 {
		cfg.AtOnce = 4
	}
	if cfg.Fence == nil {
		cfg.Fence = func(context.Context, schemas.Conversation) error { return nil }
	}
	return &Keeper{cfg: cfg, slots: make(chan struct{}, cfg.AtOnce), busy: make(map[string]*turn)}
}

// Pull brings what the store has into the workspace, for the sandbox's user to own.
func (k *Keeper) Pull(ctx context.Context, call *hooks.Call) (*schemas.SyncReport, error) {
	return k.run(ctx, call, func(s *syncer.Syncer) (*syncer.Report, error) {
		r, err := s.Pull(ctx)
		if r.Changed {
			err = errors.Join(err, own(call.Dir))
		}
		return r, err
	}, func(r *syncer.Report) (files int, bytes int64) { return r.Downloaded, r.BytesRead })
}

// Push stores the workspace as its next version, named by the time. Processes may go on writing: a file that changes while it is read
// is read again, and what came too late is the next push's.
func (k *Keeper) Push(ctx context.Context, call *hooks.Call) (*schemas.SyncReport, error) {
	return k.run(ctx, call, func(s *syncer.Syncer) (*syncer.Report, error) { return s.Push(ctx) },
		func(r *syncer.Report) (files int, bytes int64) { return r.Uploaded, r.BytesSent })
}

func (k *Keeper) run(ctx context.Context, call *hooks.Call, op func(*syncer.Syncer) (*syncer.Report, error), moved func(*syncer.Report) (int, int64)) (_ *schemas.SyncReport, err error) {
	begun := time.Now()
	conversation := call.Conversation
	if call.Template.Sync == nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "template %s keeps no workspaces: its sync.location is missing", call.Template.Name)
	}
	location, err := call.Template.Sync.ThreadLocation(conversation.Tenant, call.Template.Name, conversation.Thread)
	if err != nil {
		return nil, err
	}
	leave, err := k.enter(ctx, call.Dir)
	if err != nil {
		return nil, err
	}
	defer leave()
	sync := call.Template.Sync
	place, err := k.places.Open(ctx, location, Options{Endpoint: sync.Endpoint})
	if err != nil {
		return nil, err
	}
	defer func() { err = joined(err, place.Close()) }()
	s, err := syncer.New(syncer.Config{
		Root: call.Dir, Store: objectstore.Retry(place.Store, objectstore.RetryPolicy{}), Remote: place.Name,
		Layout: syncer.Layout(sync.Layout), OnConflict: syncer.OnConflict(sync.OnConflict),
		Fence: func(ctx context.Context) error { return k.cfg.Fence(ctx, conversation) },
	})
	if err != nil {
		return nil, err
	}
	r, err := op(s)
	files, bytes := moved(r)
	report := &schemas.SyncReport{
		Location: place.Name, Version: r.Version, Files: int64(files), Bytes: bytes, Deleted: int64(r.Deleted),
		DurationMS: float64(time.Since(begun)) / float64(time.Millisecond), Conflicts: paths(r.Conflicts),
	}
	return report, err
}

// joined is errors.Join that leaves a single error as it is.
func joined(err, other error) error {
	if other == nil {
		return err
	}
	return errors.Join(err, other)
}

// Bounds of what a report repeats of conflicts: it travels in an event.
const (
	maxConflicts = 100
	maxPathBytes = 512
)

func paths(conflicts []syncer.Conflict) (out []string) {
	for i := range conflicts[:min(len(conflicts), maxConflicts)] {
		p := conflicts[i].Path
		out = append(out, strings.ToValidUTF8(p[:min(len(p), maxPathBytes)], "\uFFFD"))
	}
	return out
}

// enter waits for the folder, then for a slot. The error is ctx's.
func (k *Keeper) enter(ctx context.Context, dir string) (leave func(), err error) {
	k.mu.Lock()
	t := k.busy[dir]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		k.busy[dir] = t
	}
	t.users++
	k.mu.Unlock()
	forget := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(k.busy, dir)
		}
	}
	select {
	case t.free <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
	select {
	case k.slots <- struct{}{}:
		return func() {
			<-k.slots
			<-t.free
			forget()
		}, nil
	case <-ctx.Done():
		<-t.free
		forget()
		return nil, ctx.Err()
	}
}
