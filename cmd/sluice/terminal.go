package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/sluice-dev/sluice/schemas"
)

// terminal is the terminal of this program while a process of a sandbox uses it.
type terminal struct {
	in   *os.File // the standard input
	size *os.File // a descriptor that knows the size: the standard output where that is a terminal too

	mu    sync.Mutex
	saved *term.State // before it became raw; nil while it is not
}

// newTerminal returns the terminal on the standard input. Errors: invalid_argument when that is none.
func (m *Main) newTerminal() (*terminal, error) {
	if m.Stdin == nil || !term.IsTerminal(int(m.Stdin.Fd())) {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"the standard input is not a terminal: run this in one, or leave out -t; `sluice logs -f PROCESS` follows without one")
	}
	t := &terminal{in: m.Stdin, size: m.Stdin}
	if out, ok := m.Stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		t.size = out
	}
	return t, nil
}

// makeRaw gives every key to the process: Ctrl+C is a key like any other.
func (t *terminal) makeRaw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		return nil
	}
	var err error
	t.saved, err = term.MakeRaw(int(t.in.Fd()))
	return err
}

// restore ends makeRaw. It may be called at any time, and repeatedly.
func (t *terminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		_ = term.Restore(int(t.in.Fd()), t.saved) // it fails when the terminal has closed
		t.saved = nil
	}
}

// current is the terminal's size, within the limits of the contract. A terminal without a size has the standard one.
func (t *terminal) current() schemas.TerminalSize {
	cols, rows, err := term.GetSize(int(t.size.Fd()))
	if err != nil || rows < 1 || cols < 1 {
		return schemas.TerminalSize{Rows: schemas.DefaultRows, Cols: schemas.DefaultCols}
	}
	return schemas.TerminalSize{Rows: int64(min(rows, schemas.MaxTerminalSize)), Cols: int64(min(cols, schemas.MaxTerminalSize))}
}

// resizeRetry is when a resize that failed is repeated: the worker of the process may be away.
const resizeRetry = time.Second

// followSize passes each size after last to resize until stop is called.
func (t *terminal) followSize(
	ctx context.Context, last schemas.TerminalSize, resize func(context.Context, schemas.TerminalSize) error,
) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var retry <-chan time.Time
			if now := t.current(); now == last || resize(ctx, now) == nil {
				last = now
			} else {
				retry = time.After(resizeRetry)
			}
			select { // while a resize is under way, later signals become one
			case <-changes:
			case <-retry:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(changes)
		cancel()
		<-ended
	}
}

// detachReader reads what the user types, until the detach keys. It holds back the keys that may be the first of them.
type detachReader struct {
	from   io.Reader
	keys   []byte        // empty for no detach keys
	detach func()        // called once, after what was typed before
	ended  chan struct{} // ends a Read after the detach keys; nil for never

	begin sync.Once
	typed chan []byte // goes to the process; nil after the detach keys, closed after the last key
	err   error       // of from, once typed is closed
	rest  []byte      // of typed, to be read before more is received
	held  []byte      // the beginning of keys
	done  bool
}

// detachGrace is how long the keys before the detach keys may take to reach the process: its worker may be away.
const detachGrace = time.Second

// typedAhead is how many pieces of typed keys may wait for the process before no more are read.
const typedAhead = 64

// Read blocks after the detach keys: the end of what the user types here is not the end of the process's input.
func (r *detachReader) Read(p []byte) (int, error) {
	r.begin.Do(func() {
		r.typed, r.detach = make(chan []byte, typedAhead), sync.OnceFunc(r.detach)
		go r.follow()
	})
	for len(r.rest) == 0 {
		typed, ok := <-r.typed
		switch {
		case !ok:
			return 0, r.err
		case typed == nil:
			r.detach()
			<-r.ended
			return 0, io.EOF
		}
		r.rest = typed
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// follow reads on while keys wait for the process, so that the detach keys are found.
func (r *detachReader) follow() {
	b := make([]byte, 4096)
	for !r.done {
		n, err := r.from.Read(b)
		if typed := r.scan(b[:n]); len(typed) > 0 {
			r.typed <- typed
		}
		if err != nil && !r.done {
			r.err = err
			close(r.typed)
			return
		}
	}
	time.AfterFunc(detachGrace, r.detach)
	r.typed <- nil
}

// scan returns what of the typed keys goes to the process.
func (r *detachReader) scan(typed []byte) []byte {
	pass := make([]byte, 0, len(r.held)+len(typed))
	for _, c := range typed {
		r.held = append(r.held, c)
		for !bytes.HasPrefix(r.keys, r.held) {
			pass, r.held = append(pass, r.held[0]), r.held[1:]
		}
		if r.done = len(r.keys) > 0 && len(r.held) == len(r.keys); r.done {
			break
		}
	}
	return pass
}

// defaultDetachKeys are those of Docker.
const defaultDetachKeys = "ctrl-p,ctrl-q"

// parseDetachKeys reads keys as Docker does: characters and ctrl-CHARACTER, separated by commas.
func parseDetachKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var keys []byte
	for name := range strings.SplitSeq(text, ",") {
		char, control := strings.CutPrefix(name, "ctrl-")
		switch {
		case len(char) != 1 || char[0] <= ' ' || char[0] > '~':
			return nil, invalidDetachKeys(text)
		case !control:
			keys = append(keys, char[0])
		case char[0] >= 'a' && char[0] <= 'z':
			keys = append(keys, char[0]-'a'+1)
		case char[0] >= '@' && char[0] <= '_':
			keys = append(keys, char[0]-'@')
		default:
			return nil, invalidDetachKeys(text)
		}
	}
	return keys, nil
}

func invalidDetachKeys(text string) error {
	return schemas.Errorf(schemas.CodeInvalidArgument,
		"--detach-keys %q is invalid: write characters and ctrl-a to ctrl-z, separated by commas", text)
}
