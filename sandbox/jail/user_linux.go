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
	// uidBase is the first user id of jails started by root: above what systemd gives to containers (524288 to 1878982655), below
	// what the kernel takes for negative.
	uidBase = 0x70000000
	// uidBlock is how many ids a provider has, and blocks how many providers' there are. A provider's block is found by its run
	// folder's name, so that it is the same after a restart.
	uidBlock = 4096
	blocks   = 0x0ff00000 / uidBlock
	// insideUID is sandboxuser's id in a user namespace.
	insideUID = 1000
)

// users gives out the user ids of a provider, each to one jail at a time.
type users struct {
	first int
	mu    sync.Mutex
	used  map[int]bool
	maps  map[int]*os.File // user namespaces that map the worker's id to a jail's, made when they are first needed
}

func newUsers(runDir string) *users {
	sum := sha256.Sum256([]byte(runDir))
	block := int(binary.LittleEndian.Uint32(sum[:])) % blocks
	return &users{first: uidBase + block*uidBlock, used: make(map[int]bool), maps: make(map[int]*os.File)}
}

func (u *users) take() (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uid := u.first; uid < u.first+uidBlock; uid++ {
		if !u.used[uid] {
			u.used[uid] = true
			return uid, nil
		}
	}
	return 0, schemas.Errorf(schemas.CodeLimitExceeded, "there are %d jails already, and no user id for one more", uidBlock)
}

// keep takes one that a jail has already.
func (u *users) keep(uid int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[uid] = true
}

func (u *users) give(uid int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, uid)
}

// mapped is a user namespace in which the worker's own id is this one outside. A mount with this mapping shows the worker's files
// as the jail's, and what the jail makes is the worker's.
func (u *users) mapped(ctx context.Context, m *mother, uid int) (*os.File, error) {
	u.mu.Lock()
	f := u.maps[uid]
	u.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := makeMapping(ctx, m, uid)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.maps[uid] = f
	return f, nil
}

// makeMapping has a child wait in a new user namespace for as long as it takes to get hold of that.
func makeMapping(ctx context.Context, m *mother, uid int) (*os.File, error) {
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
	p.call("close", unix.SYS_CLOSE, passed(2))
	p.call("wait", unix.SYS_READ, passed(1), make([]byte, 8), 1)
	p.call("exit", unix.SYS_EXIT_GROUP, 0)
	c, err := m.fork(p, reporter, r, w)
	err = errors.Join(err, r.Close(), report.Close(), reporter.Close())
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	var f *os.File
	for _, file := range []string{"uid_map", "gid_map"} {
		id := os.Geteuid()
		if file == "gid_map" {
			id = os.Getegid()
		}
		err = errors.Join(err, os.WriteFile(fmt.Sprintf("/proc/%d/%s", c.pid, file), fmt.Appendf(nil, "%d %d 1", id, uid), 0))
	}
	if err == nil {
		f, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", c.pid))
	}
	err = errors.Join(err, w.Close(), c.wait(), c.pidfd.Close(), ctx.Err())
	if err != nil && f != nil {
		err = errors.Join(err, f.Close())
	}
	return f, err
}

func (u *users) close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var err error
	for _, f := range u.maps {
		err = errors.Join(err, f.Close())
	}
	clear(u.maps)
	return err
}
