package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/discover"
	"github.com/sluice-dev/sluice/schemas"
)

// dataFolder is the data folder: the state of one user on one machine.
//
//	lock         held by the one process that has the streams open
//	next         held by a process while it takes the lock
//	server.json  how to connect to the holder of the lock; removed when that ends
//	token        the token of its NATS server (0600)
//	worker-id    the id of this machine's worker
//	incarnations of that worker, newest first
//	nats/        the streams
//	workspaces/  <tenant>/<thread>
type dataFolder struct{ path string }

// openFolder creates the folder if it is missing. Errors: invalid_argument, unavailable.
func openFolder(path string) (*dataFolder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "data folder %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "create the data folder: %w: choose another folder with --data", err)
	}
	return &dataFolder{path: abs}, nil
}

func (f *dataFolder) join(name ...string) string {
	return filepath.Join(append([]string{f.path}, name...)...)
}

// folderLock is a lock on the folder. The kernel releases it when the process ends.
type folderLock struct{ file *os.File }

// lock takes the folder's lock; ok is false where another process holds it or is taking it. A process that only reads gives it up for
// one that runs a worker. Errors: unavailable.
func (f *dataFolder) lock(ctx context.Context, worker bool) (l *folderLock, ok bool, err error) {
	next, ok, err := f.lockFile("next") // between two holders, no other process comes in
	if !ok || err != nil {
		return nil, false, err
	}
	defer next.release()
	if l, ok, err = f.lockFile("lock"); ok {
		f.removeAddress() // a holder that was killed has left it
	}
	if ok || err != nil || !worker {
		return l, ok, err
	}
	if a, known := f.readAddress(); !known || !a.Reads || f.ask(ctx, askYield, nil) != nil {
		return nil, false, nil
	}
	return f.lockFile("lock")
}

// lockFile locks a file of the folder; ok is false where another process has locked it. Errors: unavailable.
func (f *dataFolder) lockFile(name string) (l *folderLock, ok bool, err error) {
	file, err := os.OpenFile(f.join(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, schemas.Errorf(schemas.CodeUnavailable, "lock the data folder %s: %w: choose another folder with --data", f.path, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, file.Close()
	}
	if err != nil {
		return nil, false, errors.Join(schemas.Errorf(schemas.CodeUnavailable, "lock the data folder %s: %w: choose another folder with --data", f.path, err), file.Close())
	}
	return &folderLock{file}, true, nil
}

// lockPatience bounds the wait for a process that has the lock and has not said who it is: it is starting, or ends.
const lockPatience = 5 * time.Second

// mustLock takes the folder's lock for a worker. Errors: conflict where another process with a worker holds it, unavailable.
func (f *dataFolder) mustLock(ctx context.Context) (*folderLock, error) {
	holder := "another sluice process"
	for deadline := time.Now().Add(lockPatience); ; {
		l, ok, err := f.lock(ctx, true)
		if ok || err != nil {
			return l, err
		}
		a, known := f.readAddress()
		if known {
			holder = fmt.Sprintf("process %d", a.PID)
		}
		if known && !a.Reads || time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(findEvery):
		}
	}
	return nil, schemas.Errorf(schemas.CodeConflict, "data folder %s is in use by %s: stop it, or choose another folder with --data", f.path, holder)
}

// release unlocks the folder; a second call does nothing. It unlocks before it closes: a child process that is being forked at this
// moment has a copy of the file, which would hold the lock until the child's exec.
func (l *folderLock) release() {
	_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	_ = l.file.Close()
}

// address says how to connect to the process that holds the folder.
type address = discover.Address

func (f *dataFolder) writeAddress(a address) error {
	body, err := json.Marshal(a)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode %s: %w", discover.AddressFile, err)
	}
	return f.write(discover.AddressFile, body)
}

// readAddress reads the address; ok is false where there is none.
func (f *dataFolder) readAddress() (address, bool) { return discover.ReadAddress(f.path) }

func (f *dataFolder) removeAddress() { _ = os.Remove(f.join(discover.AddressFile)) } // a stale address fails at the next dial

// write replaces a file of the folder atomically. Only the user can read it.
func (f *dataFolder) write(name string, body []byte) error {
	tmp, err := os.CreateTemp(f.path, "."+name+"-*") // mode 0600
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "write %s: %w", name, err)
	}
	_, err = tmp.Write(body)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), f.join(name))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return schemas.Errorf(schemas.CodeUnavailable, "write %s: %w", name, err)
	}
	return nil
}

// read reads a file of the folder; empty where there is none.
func (f *dataFolder) read(name string) (string, error) {
	body, err := os.ReadFile(f.join(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", schemas.Errorf(schemas.CodeUnavailable, "read %s: %w", name, err)
	}
	return strings.TrimSpace(string(body)), nil
}

// text reads a file of the folder, or creates it with the text that fresh returns.
func (f *dataFolder) text(name string, fresh func() string) (string, error) {
	s, err := f.read(name)
	if s != "" || err != nil {
		return s, err
	}
	s = fresh()
	return s, f.write(name, []byte(s+"\n"))
}

// token is the folder's token, created when it is missing. Only the holder of the lock may create it.
func (f *dataFolder) token() (string, error) { return f.text(discover.TokenFile, rand.Text) }

// storedToken is the token; empty where there is none.
func (f *dataFolder) storedToken() string { return discover.ReadToken(f.path) }

// setWorkerID makes id the id of this folder's worker, also for a later one that is given none: it finds what this one left.
func (f *dataFolder) setWorkerID(id string) error {
	if known, err := f.read("worker-id"); known == id || err != nil {
		return err
	}
	return f.write("worker-id", []byte(id+"\n"))
}

// workerID is the id of this folder's worker.
func (f *dataFolder) workerID() (string, error) {
	return f.text("worker-id", func() string { return "w" + strings.ToLower(rand.Text()[:12]) })
}

// maxIncarnations is how many incarnations the folder remembers: the last to hold the lease may be followed by some that died before
// they acquired it.
const maxIncarnations = 16

// begin records the next incarnation of this folder's worker and returns those before it, newest first; see [events.Lineage]. The
// folder's lock shows that they have ended. A copy of the folder does not know the later ones of the original.
func (f *dataFolder) begin(incarnation string) (earlier []string, err error) {
	text, err := f.read("incarnations")
	if err != nil {
		return nil, err
	}
	earlier = strings.Fields(text)
	earlier = earlier[:min(len(earlier), maxIncarnations-1)]
	return earlier, f.write("incarnations", []byte(incarnation+"\n"+strings.Join(earlier, "\n")+"\n"))
}

// maxSocketFolder is the longest path of a folder for unix sockets: a socket's path has about 100 bytes on every system.
const maxSocketFolder = 64

// runFolder is the folder of the sockets and the supervisor, in the data folder: programs do not run from a /tmp that is mounted
// noexec. Where its path is too long for a socket, a link in /tmp shortens it.
func (f *dataFolder) runFolder() (string, error) {
	base := f.path
	if len(f.join("run")) > maxSocketFolder {
		var err error
		if base, err = f.shortcut(); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(base, "run")
	return dir, ownFolder(dir)
}

// shortcutFile names the file of the data folder with the folder in /tmp that has the link to it.
const shortcutFile = "shortcut"

// shortcut returns a short path of the data folder: a link in a folder that only this user may enter. Its name is random, so that no other
// user can take it first, and recorded, because what is named after a run folder is found again by its path.
func (f *dataFolder) shortcut() (string, error) {
	recorded, err := f.read(shortcutFile)
	if err != nil {
		return "", err
	}
	if filepath.Dir(recorded) == "/tmp" && ownFolder(recorded) == nil {
		if link, err := f.linkFrom(recorded); err == nil {
			return link, nil
		}
	}
	dir, err := os.MkdirTemp("/tmp", "sluice-") // mode 0700
	if err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "create the run folder: %w", err)
	}
	link, err := f.linkFrom(dir)
	if err == nil {
		err = f.write(shortcutFile, []byte(dir+"\n"))
	}
	return link, err
}

// linkFrom makes the link to the data folder. Errors: conflict for one that leads elsewhere, as after a copy of the data folder.
func (f *dataFolder) linkFrom(dir string) (string, error) {
	link := filepath.Join(dir, "data")
	if err := os.Symlink(f.path, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", schemas.Errorf(schemas.CodeUnavailable, "link the run folder: %w", err)
	}
	if target, err := os.Readlink(link); err != nil || target != f.path {
		return "", schemas.Errorf(schemas.CodeConflict, "%s does not lead to %s", link, f.path)
	}
	return link, nil
}

// ownFolder creates a folder. It refuses one that another user has created, such as in /tmp.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "create the run folder: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	var st unix.Stat_t
	switch err := unix.Lstat(dir, &st); {
	case err != nil:
		return schemas.Errorf(schemas.CodeUnavailable, "run folder %s: %w", dir, err)
	case int(st.Uid) != os.Getuid():
		return schemas.Errorf(schemas.CodePermissionDenied, "run folder %s belongs to %s: run as that user, or choose another folder with --data", dir, userName(st.Uid))
	case !info.IsDir() || info.Mode().Perm() != 0o700:
		return schemas.Errorf(schemas.CodePermissionDenied, "run folder %s must be a folder with mode 0700: remove it, or choose another folder with --data", dir)
	}
	return nil
}

// userName names a user, also one that this machine does not know.
func userName(id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	u, err := user.LookupId(number)
	if err != nil {
		return "user id " + number
	}
	return "user " + u.Username
}
