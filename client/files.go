package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// Files are the files of a thread's workspace. Operations are done in the thread's sandbox, by its user; a thread without a session gets
// one. Paths are relative to the workspace, or begin with its path in the sandbox; symbolic links in them must not lead out of it.
//
// A request that workers decline, because they are full or shutting down, is sent again for a minute.
//
// Errors of all methods: invalid_argument for a path that is not valid, leads out of the workspace, or is of another type; not_found,
// permission_denied; conflict for what exists; too_large and limit_exceeded for the limits of the workspace; pool_exhausted, deadline_exceeded, unavailable.
// Methods are safe for concurrent use.
type Files struct {
	client *Client
	place  schemas.PlaceRequest
	id     string // of the session; empty for any

	sandbox *Sandbox // whose session it is; nil for none
}

// Files returns the files of a thread.
func (c *Client) Files(thread string) *Files {
	return &Files{client: c, place: schemas.PlaceRequest{Thread: thread}}
}

// Files returns the files of the session. Errors of its methods also: session_expired.
func (s *Session) Files() *Files {
	return &Files{client: s.client, id: s.id, place: schemas.PlaceRequest{Thread: s.thread, Existing: true}}
}

// WithTemplate sets the template of the session that a thread without one gets.
func (f *Files) WithTemplate(template string) *Files {
	other := *f
	other.place.Template = template
	return &other
}

// FileOption changes how a file or folder is made.
type FileOption func(*schemas.FileRequest)

// FileMode sets the permissions. Default 0644, 0755 for a folder, and those of the file that Write replaces.
func FileMode(mode fs.FileMode) FileOption {
	return func(r *schemas.FileRequest) { r.Mode = strconv.FormatUint(uint64(mode.Perm()), 8) }
}

// FileParents makes missing folders of the path.
func FileParents() FileOption { return func(r *schemas.FileRequest) { r.Parents = true } }

// Stat returns what a path is; a symbolic link itself.
func (f *Files) Stat(ctx context.Context, path string) (*schemas.FileEntry, error) {
	return f.one(ctx, &schemas.FileRequest{Op: schemas.FileStat, Path: path}, nil)
}

// Mkdir makes a folder. With [FileParents], one that exists is no error.
func (f *Files) Mkdir(ctx context.Context, path string, opts ...FileOption) (*schemas.FileEntry, error) {
	return f.one(ctx, &schemas.FileRequest{Op: schemas.FileMkdir, Path: path}, opts)
}

// Move renames a file or folder. It replaces a file.
func (f *Files) Move(ctx context.Context, from, to string) (*schemas.FileEntry, error) {
	return f.one(ctx, &schemas.FileRequest{Op: schemas.FileMove, Path: from, To: to}, nil)
}

// Remove removes a file or an empty folder.
func (f *Files) Remove(ctx context.Context, path string) error {
	_, err := f.call(ctx, &schemas.FileRequest{Op: schemas.FileRemove, Path: path})
	return err
}

// RemoveAll removes a file, or a folder with its content. One that does not exist is an error: not_found.
func (f *Files) RemoveAll(ctx context.Context, path string) error {
	_, err := f.call(ctx, &schemas.FileRequest{Op: schemas.FileRemove, Path: path, Recursive: true})
	return err
}

// List yields the entries of a folder, by name.
func (f *Files) List(ctx context.Context, path string) iter.Seq2[schemas.FileEntry, error] {
	return func(yield func(schemas.FileEntry, error) bool) {
		after := ""
		for {
			r, err := f.call(ctx, &schemas.FileRequest{Op: schemas.FileList, Path: path, After: after})
			if err != nil {
				yield(schemas.FileEntry{}, err)
				return
			}
			for _, e := range r.Entries {
				if !yield(e, nil) {
					return
				}
			}
			if !r.Truncated || len(r.Entries) == 0 {
				return
			}
			last := r.Entries[len(r.Entries)-1].Path
			last = last[strings.LastIndexByte(last, '/')+1:]
			if last <= after {
				yield(schemas.FileEntry{}, schemas.Errorf(schemas.CodeInternal, "the list of %s begins again: a process in the sandbox interferes with it", path))
				return
			}
			after = last
		}
	}
}

// FileQuery selects what Search finds.
type FileQuery struct {
	// Path is the folder to search below. Default: the workspace.
	Path string
	// Name is a pattern of names, with * ? [ ]. Default: all.
	Name string
	// Text is what a line must contain. Default: files and folders are found, not lines.
	Text string
	// Limit is the most entries. Default and most: 1,000.
	Limit int
}

// Search finds files by name, and lines by their text. more reports that there are more than the limit.
func (f *Files) Search(ctx context.Context, q FileQuery) (found []schemas.FileEntry, more bool, err error) {
	r, err := f.call(ctx, &schemas.FileRequest{Op: schemas.FileSearch, Path: q.Path, Name: q.Name, Text: q.Text, Limit: int64(q.Limit)})
	if err != nil {
		return nil, false, err
	}
	return r.Entries, r.Truncated, nil
}

// one is an operation that returns one entry.
func (f *Files) one(ctx context.Context, req *schemas.FileRequest, opts []FileOption) (*schemas.FileEntry, error) {
	for _, o := range opts {
		o(req)
	}
	r, err := f.call(ctx, req)
	if err != nil {
		return nil, err
	}
	return entryOf(r)
}

func entryOf(r *schemas.FileReply) (*schemas.FileEntry, error) {
	if len(r.Entries) == 0 {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "the reply has no entry: the file was removed meanwhile")
	}
	return &r.Entries[0], nil
}

func (f *Files) call(ctx context.Context, req *schemas.FileRequest) (*schemas.FileReply, error) {
	_, r, err := f.begin(ctx, req)
	return r, err
}

// once reports that an operation must not be done twice.
func once(op schemas.FileOp) bool {
	return op == schemas.FileAppend || op == schemas.FileMove || op == schemas.FileRemove || op == schemas.FileMkdir
}

// begin sends a request, under a new transfer, until a worker has answered it.
func (f *Files) begin(ctx context.Context, req *schemas.FileRequest) (transfer string, r *schemas.FileReply, err error) {
	if s := f.sandbox; s != nil {
		err = s.do(ctx, always, func(session *Session) error {
			transfer, r, err = session.Files().begin(ctx, req)
			return err
		})
		return transfer, r, err
	}
	req.Session = f.id
	if err := errors.Join(schemas.CheckID("thread", f.place.Thread), req.Validate()); err != nil {
		return "", nil, schemas.AsError(err)
	}
	transfer = "f" + strings.ToLower(ulid.Make().String())
	err = whileDeclined(ctx, func() (err error) {
		r, err = f.try(ctx, transfer, req)
		return err
	})
	if err != nil {
		f.end(transfer) // nothing goes on for a caller that has left
	}
	return transfer, r, err
}

// declinePatience is how long a request is sent again that workers decline: longer than a full or restarting worker stays so, as a rule.
const declinePatience = time.Minute

// whileDeclined calls try until a worker has not declined the request. The error is the last one, or ctx's.
func whileDeclined(ctx context.Context, try func() error) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(declinePatience))
	return backoff.Retry(func() error {
		err := try()
		if err == nil || declined(err) {
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(policy, ctx))
}

// declined reports that the request has not begun, and another try may succeed.
func declined(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && (e.Details[schemas.DetailDeclined] != "" && !e.Code.Final() || e.Details[events.DetailNoOwner] != "")
}

// try sends a request to the owner of the thread until it answers, and places a thread without an owner.
func (f *Files) try(ctx context.Context, transfer string, req *schemas.FileRequest) (*schemas.FileReply, error) {
	for {
		a, err := f.ask(ctx, f.message(transfer, schemas.FileMessage{Request: req}))
		switch {
		case err == nil && a.Reply == nil:
			return nil, schemas.Errorf(schemas.CodeInternal, "the answer to a file request is no reply")
		case err == nil && a.Reply.Error != nil:
			return nil, a.Reply.Error
		case err == nil:
			return a.Reply, nil
		case errors.Is(err, errSilent):
			req.Again = once(req.Op)
		case !noOwner(err):
			return nil, err
		case req.Again:
			return nil, schemas.Errorf(schemas.CodeUnavailable, "the worker of thread %s did not answer, and is gone: whether %s was done is unknown", f.place.Thread, req.Op)
		default:
			if _, err := f.client.place(ctx, f.place); err != nil {
				if f.id != "" {
					err = expired(err)
				}
				return nil, err
			}
		}
	}
}

func noOwner(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && e.Details[events.DetailNoOwner] != ""
}

func (f *Files) message(transfer string, m schemas.FileMessage) schemas.FileMessage {
	m.Tenant, m.Thread, m.Transfer = f.client.tenant, f.place.Thread, transfer
	return m
}

// fileTry is how long a message may go without an answer before it is sent again: a worker that was killed does not answer.
const fileTry = 5 * time.Second

// errSilent reports that no answer came in time.
var errSilent = errors.New("no answer came in time")

// ask sends a message once. Errors: errSilent, those of the caller.
func (f *Files) ask(ctx context.Context, m schemas.FileMessage) (schemas.FileAnswer, error) {
	k, err := f.client.caller.SendFile(m)
	if err != nil {
		return schemas.FileAnswer{}, err
	}
	defer k.Close()
	return waitAnswer(ctx, k)
}

// waitAnswer waits for an answer. Errors: errSilent, those of Wait.
func waitAnswer(ctx context.Context, k *events.FileCall) (schemas.FileAnswer, error) {
	try, cancel := context.WithTimeout(ctx, fileTry)
	defer cancel()
	a, err := k.Wait(try)
	if err != nil && try.Err() != nil && ctx.Err() == nil {
		return a, errSilent
	}
	return a, err
}

// fileKeep is how often a request with content is sent again. It is less than the worker's patience.
const fileKeep = 10 * time.Second

// keep sends a request again while its content pauses, since the worker ends a transfer whose caller sends nothing. ended ends that and the
// transfer.
func (f *Files) keep(ctx context.Context, transfer string, req *schemas.FileRequest) (ended func()) {
	again := *req
	again.Again = true // begins nothing
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(fileKeep); ; {
			select {
			case <-tick.C:
				if k, err := f.client.caller.SendFile(f.message(transfer, schemas.FileMessage{Request: &again})); err == nil {
					k.Close()
				}
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	}()
	return func() {
		stop()
		<-stopped
		f.end(transfer)
	}
}

// end ends a transfer that may go on, and waits for nothing: one that is not ended ends after a while.
func (f *Files) end(transfer string) {
	k, err := f.client.caller.SendFile(f.message(transfer, schemas.FileMessage{Request: &schemas.FileRequest{Op: schemas.FileCancel}}))
	if err == nil {
		k.Close()
	}
}

var _ io.ReadCloser = (*fileReader)(nil)
