package syncer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// uploadsName is the file that lists the uploads in parts that are under way, and those of killed operations.
const uploadsName = state.ReservedName + ".uploads"

const (
	maxUploads     = 256     // entries; the oldest are dropped
	maxUploadID    = 2 << 10 // bytes; AWS's have 128
	maxUploadsFile = 1 << 20 // bytes
	abortsAtOnce   = 8
)

// uploadsFile is the content of the file. The operation that wrote it held the lock of the folder until its own end. So the operation that
// holds the lock now, of the same folder on the same machine, knows that none of the uploads is under way any more. In a copy of the folder
// it does not know that.
type uploadsFile struct {
	Machine string           `json:"machine"`
	Device  uint64           `json:"device"`
	Folder  uint64           `json:"folder"` // its inode
	Uploads []recordedUpload `json:"uploads"`
}

type recordedUpload struct {
	Remote string `json:"remote"` // see [Config].Remote
	objectstore.Upload
}

// valid reports whether an operation may have begun the upload: its key is one of those of a push, and so below the prefix also on a
// server that resolves dots.
func (u *recordedUpload) valid() bool {
	return u.ID != "" && len(u.ID) <= maxUploadID && u.Key != "." && fs.ValidPath(u.Key) && plain.Key(u.Key) == u.Key
}

// uploads records the uploads in parts of an operation, and aborts those that a killed one has left.
type uploads struct {
	*operation

	mu    sync.Mutex
	here  *uploadsFile // without uploads; nil until the file was read
	stale bool         // the file has more than all
	all   []recordedUpload
}

var _ objectstore.Uploads = (*uploads)(nil)

// Begun implements [objectstore.Uploads]. An upload that cannot be recorded is only not aborted should this process be killed, which is
// no reason to fail.
func (u *uploads) Begun(upload objectstore.Upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := recordedUpload{u.cfg.Remote, upload}
	if u.load(); u.here.Machine == "" || !r.valid() {
		return
	}
	u.all = append(u.all, r)
	u.all = u.all[max(0, len(u.all)-maxUploads):]
	u.stale = u.write(true) != nil
}

// Ended implements [objectstore.Uploads]. The file keeps the upload until the next one begins or the last one ends: to abort it again is
// a request, and no harm.
func (u *uploads) Ended(upload objectstore.Upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = slices.DeleteFunc(u.all, func(r recordedUpload) bool { return r.Remote == u.cfg.Remote && r.Upload == upload })
	u.stale = true
}

// close writes down what the operation has left. Where that fails, the next push aborts what has ended, too.
func (u *uploads) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stale {
		_ = u.write(false)
	}
}

// load reads the file. One that is not of this folder, or may be another user's, counts as none.
func (u *uploads) load() {
	if u.here != nil {
		return
	}
	u.here = u.identify()
	f, size, err := worktree.OpenTrusted(u.own, uploadsName, maxUploadsFile)
	if u.stale = !errors.Is(err, fs.ErrNotExist); err != nil {
		return
	}
	data, err := io.ReadAll(io.LimitReader(f, size))
	_ = f.Close() // it was only read
	var was uploadsFile
	if err != nil || json.Unmarshal(data, &was) != nil || u.here.Machine == "" ||
		was.Machine != u.here.Machine || was.Device != u.here.Device || was.Folder != u.here.Folder {
		return
	}
	all := slices.DeleteFunc(was.Uploads, func(r recordedUpload) bool { return !r.valid() })
	u.all, u.stale = all[max(0, len(all)-maxUploads):], false
}

// identify returns what identifies the folder that this operation has locked.
func (u *uploads) identify() *uploadsFile {
	var st unix.Stat_t
	id := worktree.MachineID()
	if id == "" || unix.Fstat(int(u.dir.Fd()), &st) != nil {
		return &uploadsFile{}
	}
	sum := sha256.Sum256([]byte("sluice sync uploads " + id)) // the ID itself is confidential
	return &uploadsFile{Machine: hex.EncodeToString(sum[:16]), Device: uint64(st.Dev), Folder: st.Ino}
}

func (u *uploads) write(durable bool) error {
	if len(u.all) == 0 {
		return removeOwn(u.own, uploadsName)
	}
	file := *u.here
	file.Uploads = u.all
	data, err := json.Marshal(file)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	_, err = worktree.ReplaceFile(u.own, uploadsName, data, durable)
	return err
}

// abortLeft aborts the uploads that killed operations of this folder have begun at this place. Those that the store does not let go
// stay recorded, and are no reason to fail.
func (u *uploads) abortLeft(ctx context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.load()
	var mine, left []recordedUpload
	for _, r := range u.all {
		if r.Remote == u.cfg.Remote {
			mine = append(mine, r)
		} else {
			left = append(left, r)
		}
	}
	if len(mine) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	aborted, errs := make([]bool, len(mine)), make([]error, len(mine))
	_ = parallel.Run(ctx, abortsAtOnce, len(mine), func(ctx context.Context, indexes iter.Seq[int]) error {
		for i := range indexes {
			errs[i] = u.cfg.Store.AbortUpload(ctx, mine[i].Upload)
			if aborted[i] = errs[i] == nil; !aborted[i] {
				break // a store that refuses one may refuse all, and each request costs money
			}
		}
		return nil
	})
	var failed []recordedUpload
	var err error
	for i, r := range mine {
		switch {
		case errs[i] != nil:
			failed, err = append(failed, r), errs[i]
		case !aborted[i]:
			left = append(left, r)
		}
	}
	u.all, u.stale = append(left, failed...), true // the next time, those that were not tried come first
	if err != nil {
		u.note(fmt.Sprintf("uploads in parts that an interrupted push left were not aborted, and stay until the next push: %v", err))
	}
}
