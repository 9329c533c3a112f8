package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// folder is the data folder: what one user keeps on one machine.
//
//	lock         held by the one process that has the streams open
//	server.json  how to reach that process; gone when it is
//	token        what a stranger needs (0600)
//	worker-id    this machine's worker
//	nats/        the streams
//	workspaces/  <tenant>/<thread>
type folder struct{ path string }

// openFolder makes the folder where it is missing. Errors: invalid_argument, unavailable.
func openFolder(path string) (*folder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "data folder %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "make the data folder: %w: choose another with --data", err)
	}
	return &folder{path: abs}, nil
}

func (f *folder) join(name ...string) string {
	return filepath.Join(append([]string{f.path}, name...)...)
}

// held is a lock on the folder. It ends with the process, however that ends.
type held struct{ file *os.File }

// lock takes the folder's lock, or says that somebody has it. Errors: unavailable.
func (f *folder) lock() (l *held, ok bool, err error) {
	file, err := os.OpenFile(f.join("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, schemas.Errorf(schemas.CodeUnavailable, "lock the data folder %s: %w: choose another with --data", f.path, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, file.Close()
	}
	if err != nil {
		return nil, false, errors.Join(schemas.Errorf(schemas.CodeUnavailable, "lock the data folder %s: %w: choose another with --data", f.path, err), file.Close())
	}
	return &held{file}, true, nil
}

func (l *held) release() { _ = l.file.Close() } // the lock goes with the file

// address says how to reach the process that holds the folder.
type address struct {
	// URL is where its server listens; empty when it does not.
	URL string `json:"url,omitempty"`
	// Socket is a unix socket to the server in it; empty when URL is set.
	Socket string `json:"socket,omitempty"`
	// PID is the process.
	PID int `json:"pid"`
}

func (f *folder) writeAddress(a address) error {
	body, err := json.Marshal(a)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode server.json: %w", err)
	}
	return f.write("server.json", body)
}

// readAddress reads it; ok is false where there is none.
func (f *folder) readAddress() (a address, ok bool) {
	body, err := os.ReadFile(f.join("server.json"))
	if err != nil || json.Unmarshal(body, &a) != nil {
		return address{}, false
	}
	return a, a.URL != "" || a.Socket != ""
}

func (f *folder) removeAddress() { _ = os.Remove(f.join("server.json")) } // a stale one is found out by dialling

// write replaces a file of the folder at once, readable by the user alone.
func (f *folder) write(name string, body []byte) error {
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

// text reads a file of the folder, or makes it with what fresh gives.
func (f *folder) text(name string, fresh func() string) (string, error) {
	body, err := os.ReadFile(f.join(name))
	if err == nil && strings.TrimSpace(string(body)) != "" {
		return strings.TrimSpace(string(body)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", schemas.Errorf(schemas.CodeUnavailable, "read %s: %w", name, err)
	}
	s := fresh()
	return s, f.write(name, []byte(s+"\n"))
}

// token is the folder's token, made when there is none yet. Only the holder of the lock may make it.
func (f *folder) token() (string, error) { return f.text("token", rand.Text) }

// storedToken is the token if there is one.
func (f *folder) storedToken() string {
	body, err := os.ReadFile(f.join("token"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(body))
}

// workerID is this folder's worker.
func (f *folder) workerID() (string, error) {
	return f.text("worker-id", func() string { return "w" + strings.ToLower(rand.Text()[:12]) })
}

// maxSocketFolder is how long a folder may be for a unix socket in it to have a valid name on every system.
const maxSocketFolder = 64

// runFolder is where sockets live: in the data folder, unless its name is too long for one.
func (f *folder) runFolder() (string, error) {
	dir := f.join("run")
	if len(dir) > maxSocketFolder {
		sum := sha256.Sum256([]byte(f.path))
		dir = filepath.Join("/tmp", fmt.Sprintf("sluice-%d-%s", os.Getuid(), hex.EncodeToString(sum[:8])))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "create the run folder: %w", err)
	}
	// Anybody may have made a folder of that name in /tmp before.
	info, err := os.Lstat(dir)
	if err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || int(st.Uid) != os.Getuid() {
		return "", schemas.Errorf(schemas.CodePermissionDenied, "run folder %s must be a folder of yours with mode 0700: remove it, or set --data to a shorter path", dir)
	}
	return dir, nil
}
