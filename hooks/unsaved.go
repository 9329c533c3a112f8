package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	// maxUnsaved is how many messages of a thread wait to be stored. A thread's messages are answered one after the other.
	maxUnsaved = 256
	// maxUnsavedFile is more than a message takes as JSON, in bytes: a byte of its text takes six at most.
	maxUnsavedFile = 6*schemas.MaxPromptBytes + 64<<10
	unsavedSuffix  = ".json"
)

// unsaved are the messages of each thread that are not stored yet, in their order. Each is a file until it is stored: a worker that is
// killed stores it when it is back.
type unsaved struct {
	dir string // "" for no files

	mu     sync.Mutex
	calls  map[threadKey][]*unsavedCall
	number int // of the last file
}

type unsavedCall struct {
	*Call
	file string // "" for none
}

type threadKey struct{ tenant, thread string }

func keyOfThread(call *Call) threadKey {
	return threadKey{call.Conversation.Tenant, call.Conversation.Thread}
}

// add adds a message, unless it waits already. Errors: limit_exceeded.
func (u *unsaved) add(call *Call) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.addLocked(call, "")
}

func (u *unsaved) addLocked(call *Call, file string) error {
	key := keyOfThread(call)
	waiting := u.calls[key]
	for _, c := range waiting {
		if c.Message.Process == call.Message.Process && c.Message.Role == call.Message.Role {
			return nil
		}
	}
	if len(waiting) == maxUnsaved {
		return schemas.Errorf(schemas.CodeLimitExceeded, "%d messages of thread %s wait to be stored already", maxUnsaved, key.thread)
	}
	if u.calls == nil {
		u.calls = make(map[threadKey][]*unsavedCall)
	}
	later := *call
	later.Exec = nil // the sandbox may be gone by then
	u.calls[key] = append(waiting, &unsavedCall{&later, file})
	return nil
}

// first returns the message that has to be stored next in the call's thread; nil for none. Concurrent callers may store the same one.
func (u *unsaved) first(call *Call) *unsavedCall {
	u.mu.Lock()
	defer u.mu.Unlock()
	if waiting := u.calls[keyOfThread(call)]; len(waiting) > 0 {
		return waiting[0]
	}
	return nil
}

// remove removes a message that first returned.
func (u *unsaved) remove(call *unsavedCall) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := keyOfThread(call.Call)
	waiting := u.calls[key]
	if len(waiting) == 0 || waiting[0] != call {
		return // another caller has stored it as well
	}
	if call.file != "" {
		_ = os.Remove(call.file) // a file that stays is stored again, which changes nothing
	}
	if waiting = waiting[1:]; len(waiting) == 0 {
		delete(u.calls, key)
		return
	}
	u.calls[key] = waiting
}

// keep writes the messages of a call's thread to files.
func (u *unsaved) keep(call *Call) error {
	if u.dir == "" {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.calls[keyOfThread(call)] {
		if c.file != "" {
			continue
		}
		file, err := u.write(&c.HookData)
		if err != nil {
			return err
		}
		c.file = file
	}
	return nil
}

// write writes a file under the next name. The names are in the order of the messages, also over restarts. mu is held.
func (u *unsaved) write(d *schemas.HookData) (string, error) {
	body, err := json.Marshal(d)
	if err == nil {
		err = os.MkdirAll(u.dir, 0o700)
	}
	if err != nil {
		return "", err
	}
	u.number++
	file := filepath.Join(u.dir, fmt.Sprintf("%019d-%09d%s", time.Now().UnixNano(), u.number, unsavedSuffix))
	if err := os.WriteFile(file+".new", body, 0o600); err != nil {
		return "", err
	}
	return file, os.Rename(file+".new", file)
}

// load adds the messages that an earlier run of the worker has left, and returns one of each thread.
func (u *unsaved) load() (first []*Call, err error) {
	if u.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(u.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	known := make(map[string]bool)
	for _, waiting := range u.calls {
		for _, c := range waiting {
			known[c.file] = true
		}
	}
	for _, e := range entries {
		file := filepath.Join(u.dir, e.Name())
		if known[file] || !strings.HasSuffix(file, unsavedSuffix) {
			continue
		}
		call := &Call{}
		if readErr := readUnsaved(file, &call.HookData); readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		alone := len(u.calls[keyOfThread(call)]) == 0
		if addErr := u.addLocked(call, file); addErr == nil && alone {
			first = append(first, call)
		}
	}
	return first, err
}

func readUnsaved(file string, d *schemas.HookData) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(f, maxUnsavedFile))
	if err == nil {
		err = json.Unmarshal(body, d)
	}
	if err == nil && d.Message == nil {
		err = errors.New("it has no message")
	}
	if err != nil {
		return fmt.Errorf("read the unsaved message %s: %w", file, err)
	}
	return nil
}

// loadUnsaved queues the messages that an earlier run of the worker could not store.
func (c *Chains) loadUnsaved() {
	hook, ok := c.named[schemas.HookSave].(saveMessage)
	if !ok || c.cfg.Messages == nil {
		return
	}
	calls, err := hook.unsaved.load()
	if err != nil {
		c.cfg.Log.Warn().Err(err).Msg("unsaved messages not read")
	}
	for _, call := range calls {
		l := &link{name: schemas.HookSave, hook: hook, run: hook.save, timeout: hookTimeout}
		c.retries.addAbsent(newRetry(l, call, 0, 0))
	}
}
