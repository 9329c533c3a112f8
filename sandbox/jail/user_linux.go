package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/userids"
)

// userNamespaceUID is sandboxuser's id in a user namespace.
const userNamespaceUID = 1000

// jailUsers are the users of a provider's jails, and what shows each of them the worker's files as its own.
type jailUsers struct {
	*userids.Block

	mu         sync.Mutex
	namespaces map[int]*os.File // by user id, created on first use
}

func newJailUsers(runDir string) *jailUsers {
	return &jailUsers{Block: userids.New(runDir), namespaces: make(map[int]*os.File)}
}

// namespace returns a user namespace that maps the worker's id to this one. A mount with this mapping shows the worker's files as the
// jail's, and files that the jail creates belong to the worker.
func (u *jailUsers) namespace(ctx context.Context, z *zygoteClient, uid int) (*os.File, error) {
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

func (u *jailUsers) close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var err error
	for _, f := range u.namespaces {
		err = errors.Join(err, f.Close())
	}
	clear(u.namespaces)
	return err
}
