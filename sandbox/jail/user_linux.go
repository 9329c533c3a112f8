package jail

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	// uidBase is the first user id of jails that root starts: above the range that systemd gives to containers (524288 to
	// 1878982655), and below the ids that are negative as a signed number.
	uidBase = 0x70000000
	// uidBlockSize is the number of ids of a provider, and uidBlocks the number of blocks. The name of the run folder selects the
	// block, so that a provider has the same after a restart.
	uidBlockSize = 4096
	uidBlocks    = 0x0ff00000 / uidBlockSize
	// userNamespaceUID is sandboxuser's id in a user namespace.
	userNamespaceUID = 1000
)

// userIDs allocates a provider's user ids, each to one jail at a time.
type userIDs struct {
	first int

	mu         sync.Mutex
	used       map[int]bool
	namespaces map[int]*os.File // by user id, created on first use
}

func newUserIDs(runDir string) *userIDs {
	sum := sha256.Sum256([]byte(runDir))
	block := int(binary.LittleEndian.Uint32(sum[:])) % uidBlocks
	return &userIDs{first: uidBase + block*uidBlockSize, used: make(map[int]bool), namespaces: make(map[int]*os.File)}
}

// allocate returns an unused id. Errors: limit_exceeded.
func (u *userIDs) allocate() (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uid := u.first; uid < u.first+uidBlockSize; uid++ {
		if !u.used[uid] {
			u.used[uid] = true
			return uid, nil
		}
	}
	return 0, schemas.Errorf(schemas.CodeLimitExceeded, "all %d user ids of this run folder are in use: terminate a sandbox, or use another run folder", uidBlockSize)
}

func (u *userIDs) reserve(uid int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[uid] = true
}

func (u *userIDs) release(uid int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, uid)
}

// namespace returns a user namespace that maps the worker's id to this one. A mount with this mapping shows the worker's files as the
// jail's, and files that the jail creates belong to the worker.
func (u *userIDs) namespace(ctx context.Context, z *zygoteClient, uid int) (*os.File, error) {
	u.mu.Lock()
	f := u.namespaces[uid]
	u.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := newUserNamespace(ctx, z, uid)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.namespaces[uid] = f
	return f, nil
}

// newUserNamespace has a process wait in a new user namespace until the namespace is open.
func newUserNamespace(ctx context.Context, z *zygoteClient, uid int) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	report, reporter, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, r.Close(), w.Close())
	}
	p := &program{}
	p.Flags = unix.CLONE_NEWUSER
	p.call("close the pipe's write end", unix.SYS_CLOSE, descriptor(2))
	p.call("wait for the end of the pipe", unix.SYS_READ, descriptor(1), make([]byte, 8), 1)
	p.call("exit", unix.SYS_EXIT_GROUP, 0)
	holder, err := z.fork(p, reporter, r, w)
	err = errors.Join(err, r.Close(), report.Close(), reporter.Close())
	if holder == nil {
		return nil, errors.Join(err, w.Close())
	}
	var f *os.File
	for file, id := range map[string]int{"uid_map": os.Geteuid(), "gid_map": os.Getegid()} {
		err = errors.Join(err, os.WriteFile(fmt.Sprintf("/proc/%d/%s", holder.pid, file), fmt.Appendf(nil, "%d %d 1", id, uid), 0))
	}
	if err == nil {
		f, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", holder.pid))
	}
	err = errors.Join(err, w.Close(), holder.wait(), holder.pidfd.Close(), ctx.Err())
	if err != nil && f != nil {
		err = errors.Join(err, f.Close())
	}
	return f, err
}

func (u *userIDs) close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var err error
	for _, f := range u.namespaces {
		err = errors.Join(err, f.Close())
	}
	clear(u.namespaces)
	return err
}
