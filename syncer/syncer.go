package syncer

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/cryptstore"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Config is a folder, a place in a store, and how to sync them. Root, Store and Remote are required.
type Config struct {
	// Root is the folder, which must exist.
	Root string
	// OwnDir is the folder for what operations keep beside the state file: the index, and the notes of interrupted operations. It is made
	// where it does not exist, and must be on no path that another user can change. Set it where a process that is not trusted writes to
	// Root: nothing that such a process leaves there is relied on. Default: Root.
	OwnDir string
	// Store holds the workspace. Wrap it in [objectstore.Retry] unless it retries by itself.
	Store objectstore.Store
	// Remote names the store and the place in it, such as s3://bucket/prefix. A folder that was last synced with
	// another place has nothing in common with this one. It is written to the local state: no secrets in it.
	Remote string
	// Key encrypts content, its names in the store, and states, in the packed layout; nil for none. The store says whether a workspace is
	// encrypted: an operation with another key, or one too many or missing, fails with [cryptstore.ErrKey] and changes nothing.
	Key *cryptstore.Key
	// StoreDir is the folder of a store in the file system, else "". It must be apart from Root.
	StoreDir string
	// Layout is how content is kept when the workspace is stored for the first time; default [state.Packed]. It is an error
	// when it is set and the workspace has another layout.
	Layout state.Layout
	// OnConflict settles paths that changed on both sides; default [plan.ConflictFail].
	OnConflict plan.OnConflict
	// Verify reads every local file again, even when its stat did not change. A push reads the store's content too, and sends again
	// what is missing or damaged.
	Verify bool
	// Ignore has patterns to exclude, beside those of [worktree.IgnoreFile].
	Ignore []string
	// Include, when set, has the patterns of the paths to sync: all else counts as ignored.
	Include []string
	// OutsideLinks keeps symlinks that lead out of the folder. By default they are skipped and reported.
	OutsideLinks bool
	// SingleWriter asserts that no other writer uses this place: no write has a condition, which some stores ignore or refuse.
	SingleWriter bool
	// Limits bound what a state may ask for.
	Limits state.Limits
	// Sizes decide how much of a long state each push writes.
	Sizes packed.StateSizes
	// Uploads and Downloads are the most requests at once; defaults 8 packed and 64 plain, for both.
	Uploads, Downloads int
	// Retention selects the versions to keep; the zero value keeps all.
	Retention Retention
	// StaleAfter is the age of the last sync from which on [Status] calls the state stale; default 1 h.
	StaleAfter time.Duration
	// Fence, when set, is called before the store's state is changed, and before a plain layout's files are. Its error
	// ends the operation with nothing changed. It is for a writer that another may have replaced meanwhile.
	Fence func(ctx context.Context) error
	// MayDelete, when set, is asked before a push deletes files in the store, or a pull in the folder, and nothing is changed yet. Its error
	// ends the operation.
	MayDelete func(Deletion) error
	// Progress, when set, is called as work is done, from several goroutines at once.
	Progress func(Progress)
	// Now is the clock that names versions; default [time.Now].
	Now func() time.Time
}

// Progress is how far an operation is.
type Progress struct {
	Phase             string // "scan", "upload", "download", "install", "commit" or "publish"
	Files, FilesTotal int64
	Bytes, BytesTotal int64
}

// Syncer syncs one folder with one place in a store. A lock on the folder allows one operation at a time, between
// processes too.
type Syncer struct{ cfg Config }

// New checks the configuration. It touches neither the folder nor the store.
func New(cfg Config) (*Syncer, error) {
	cfg.OnConflict = cmp.Or(cfg.OnConflict, plan.ConflictFail)
	settings := []plan.OnConflict{plan.ConflictFail, plan.ConflictLocal, plan.ConflictRemote, plan.ConflictBoth}
	switch {
	case cfg.Root == "":
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: no folder given")
	case cfg.Store == nil:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: no store given")
	case cfg.Remote == "":
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: the store has no name")
	case cfg.Layout != "" && cfg.Layout != state.Packed && cfg.Layout != state.Plain:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: unknown --layout %q: use packed or plain", cfg.Layout)
	case cfg.Key != nil && cfg.Layout == state.Plain:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"sync: the plain layout cannot be encrypted, because other tools read it: omit --layout, or the key")
	case !slices.Contains(settings, cfg.OnConflict):
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"sync: unknown --on-conflict %q: use fail, local, remote or both", cfg.OnConflict)
	}
	cfg.Store = cryptstore.New(cfg.Store, cfg.Key)
	if cfg.SingleWriter {
		cfg.Store = unconditional{cfg.Store}
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	cfg.Uploads, cfg.Downloads = max(0, cfg.Uploads), max(0, cfg.Downloads)
	cfg.Retention.Grace = cmp.Or(max(cfg.Retention.Grace, 0), 24*time.Hour)
	cfg.StaleAfter = cmp.Or(max(cfg.StaleAfter, 0), time.Hour)
	if cfg.Progress == nil {
		cfg.Progress = func(Progress) {}
	}
	if cfg.Fence == nil {
		cfg.Fence = func(context.Context) error { return nil }
	}
	if cfg.MayDelete == nil {
		cfg.MayDelete = func(Deletion) error { return nil }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Syncer{cfg: cfg}, nil
}

// meter reports the work of one phase on files. The function it returns adds files that are done, and bytes, which for a
// large file come before that.
func (s *Syncer) meter(phase string, files []*state.Node) func(files, bytes int64) {
	var filesDone, bytesDone atomic.Int64
	total := int64(0)
	for _, n := range files {
		total += n.Size
	}
	return func(f, b int64) {
		s.cfg.Progress(Progress{Phase: phase, Files: filesDone.Add(f), FilesTotal: int64(len(files)),
			Bytes: bytesDone.Add(b), BytesTotal: total})
	}
}

// Report is the result of an operation.
type Report struct {
	Version    string             `json:"version,omitempty"` // the state's name afterwards
	Files      int                `json:"files"`             // files in the folder
	Uploaded   int                `json:"uploaded"`          // files sent
	Downloaded int                `json:"downloaded"`        // files fetched
	Deleted    int                `json:"deleted"`           // paths removed: in the store by a push, in the folder by a pull
	BytesSent  int64              `json:"bytes_sent"`        // content bytes
	BytesRead  int64              `json:"bytes_read"`        // content bytes
	Conflicts  []Conflict         `json:"conflicts,omitempty"`
	Skipped    []worktree.Skipped `json:"skipped,omitempty"`
	Unsteady   []string           `json:"unsteady,omitempty"`    // files that kept changing while they were read
	Notes      []string           `json:"notes,omitempty"`       // warnings: a state that was rebuilt, names that collide
	RolledBack bool               `json:"rolled_back,omitempty"` // the store has an earlier version than the folder, or another workspace
	Changed    bool               `json:"changed"`               // whether the operation changed anything
	DurationMS int64              `json:"duration_ms"`
	Traffic
}

// Traffic is what an operation has asked of a server. It is 0 for a store that is a folder.
type Traffic struct {
	Requests      int64 `json:"requests"`       // with retries and pages of listings
	RequestBytes  int64 `json:"request_bytes"`  // content, states and versions sent, retries included
	ResponseBytes int64 `json:"response_bytes"` // what was received
}

// Conflict is a path that changed on both sides since the last sync.
type Conflict struct {
	Path   string `json:"path"`
	Local  string `json:"local"`  // the change in the folder: "added", "changed", "deleted", …
	Remote string `json:"remote"` // the change in the store
	Kept   string `json:"kept"`   // "local", "remote", "both", or "" for one that was not settled
}
