package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// Write puts a file in place as a whole: a reader sees the old content or the new one, and after an error the old one. A symbolic link is
// replaced, not followed.
func (f *Files) Write(ctx context.Context, path string, from io.Reader, opts ...FileOption) (*schemas.FileEntry, error) {
	return f.put(ctx, &schemas.FileRequest{Op: schemas.FileWrite, Path: path}, from, opts)
}

// WriteFile is Write of these bytes.
func (f *Files) WriteFile(ctx context.Context, path string, content []byte, opts ...FileOption) (*schemas.FileEntry, error) {
	return f.Write(ctx, path, bytes.NewReader(content), opts...)
}

// Append adds to the end of a file, and makes it when it does not exist. After an error, a part may have been added.
func (f *Files) Append(ctx context.Context, path string, from io.Reader, opts ...FileOption) (*schemas.FileEntry, error) {
	return f.put(ctx, &schemas.FileRequest{Op: schemas.FileAppend, Path: path}, from, opts)
}

// Upload extracts a tar stream into a folder, which it makes. Each file is put in place as a whole; after an error, those before it are
// there. It returns how many files and bytes it wrote.
func (f *Files) Upload(ctx context.Context, path string, tar io.Reader) (files, size int64, err error) {
	r, err := f.send(ctx, &schemas.FileRequest{Op: schemas.FileUpload, Path: path}, tar)
	if err != nil {
		return 0, 0, err
	}
	return r.Files, r.Bytes, nil
}

func (f *Files) put(ctx context.Context, req *schemas.FileRequest, from io.Reader, opts []FileOption) (*schemas.FileEntry, error) {
	for _, o := range opts {
		o(req)
	}
	r, err := f.send(ctx, req, from)
	if err != nil {
		return nil, err
	}
	return entryOf(r)
}

// sent is a piece that was sent and not answered.
type sent struct {
	call   *events.FileCall
	shared *piece // with its data; nil for the transfer's own piece
	end    bool
}

// send carries out an operation that takes content. An error of the reader ends it, and undoes what it had not finished.
func (f *Files) send(ctx context.Context, req *schemas.FileRequest, from io.Reader) (*schemas.FileReply, error) {
	transfer, _, err := f.begin(ctx, req)
	if err != nil {
		return nil, err
	}
	defer f.keep(ctx, transfer, req)()
	var window []sent
	defer func() {
		for _, s := range window {
			s.call.Close()
			f.client.shared.give(s.shared)
		}
	}()
	var own []byte
	offset, end := int64(0), false
	for {
		for !end && len(window) < schemas.MaxFileWindow {
			shared := f.client.shared.take()
			if shared == nil && len(window) > 0 {
				break
			}
			if shared == nil && own == nil {
				own = make([]byte, ownPiece)
			}
			s, n, err := f.sendPiece(transfer, offset, from, shared, own)
			if err != nil {
				f.client.shared.give(shared)
				return nil, err
			}
			window, offset, end = append(window, s), offset+int64(n), s.end
		}
		r, err := answered(ctx, window)
		if err != nil {
			return nil, f.broken(ctx, err)
		}
		first := window[0]
		window = window[1:]
		first.call.Close()
		f.client.shared.give(first.shared)
		if first.end {
			return r, nil
		}
	}
}

// sendPiece fills a piece, its own one where shared is nil, and sends it.
func (f *Files) sendPiece(transfer string, offset int64, from io.Reader, shared *piece, own []byte) (s sent, n int, err error) {
	buf := own
	if shared != nil {
		buf = shared[:]
	}
	n, err = fill(from, buf)
	end := errors.Is(err, io.EOF)
	if err != nil && !end {
		return s, n, err
	}
	call, err := f.client.caller.SendFile(f.message(transfer, schemas.FileMessage{Offset: offset, Data: buf[:n], End: end}))
	return sent{call, shared, end}, n, err
}

// fill reads until buf is full or the reader ends. With [io.ReadFull], the error of a connection that was cut would look like the end.
func fill(from io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = from.Read(buf[n:])
		n += k
	}
	return n, err
}

// answered waits for the answer to the first piece. It sends all again while there is none.
func answered(ctx context.Context, window []sent) (*schemas.FileReply, error) {
	for {
		a, err := waitAnswer(ctx, window[0].call)
		switch {
		case errors.Is(err, errSilent):
			for _, s := range window {
				if err := s.call.Send(); err != nil {
					return nil, err
				}
			}
		case err != nil:
			return nil, err
		case a.Reply == nil:
			return nil, schemas.Errorf(schemas.CodeInternal, "the answer to a piece of content is no reply")
		case a.Reply.Error != nil:
			return nil, a.Reply.Error
		default:
			return a.Reply, nil
		}
	}
}

// broken gives the error of a transfer whose worker has given the thread up its code.
func (f *Files) broken(ctx context.Context, err error) error {
	if noOwner(err) {
		if _, err := f.client.SessionInfo(ctx, f.place.Thread); errors.Is(err, schemas.ErrNotFound) {
			return schemas.Errorf(schemas.CodeSessionExpired, "the session of thread %s has ended", f.place.Thread)
		}
		return schemas.Errorf(schemas.CodeUnavailable, "the worker of thread %s is gone: try again", f.place.Thread)
	}
	return err
}

// FilePart is a part of a file.
type FilePart struct {
	// Offset is where it begins, in bytes.
	Offset int64
	// Limit is its size. Default 0: to the end of the file.
	Limit int64
}

// Open reads a file while it arrives. Close must be called; the context is for all reads.
func (f *Files) Open(ctx context.Context, path string, part FilePart) (io.ReadCloser, error) {
	return f.get(ctx, &schemas.FileRequest{Op: schemas.FileRead, Path: path, Offset: part.Offset, Limit: part.Limit})
}

// ReadFile reads a whole file.
func (f *Files) ReadFile(ctx context.Context, path string) ([]byte, error) {
	r, err := f.Open(ctx, path, FilePart{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Download reads a file, or a folder with its content, as a tar stream. Names begin with the last part of the path. Sockets, named pipes
// and devices are left out, and so is what the sandbox's user may not read. Close must be called; the context is for all reads.
func (f *Files) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	return f.get(ctx, &schemas.FileRequest{Op: schemas.FileDownload, Path: path})
}

// Watch yields what changes at or below a path, until the loop is left or ctx ends. The first entry has the change ready: what changes
// from then on is reported, within a second in a workspace of some thousand files. Changes that undo each other in between are not.
func (f *Files) Watch(ctx context.Context, path string) iter.Seq2[schemas.FileEntry, error] {
	return func(yield func(schemas.FileEntry, error) bool) {
		r, err := f.get(ctx, &schemas.FileRequest{Op: schemas.FileWatch, Path: path})
		if err != nil {
			yield(schemas.FileEntry{}, err)
			return
		}
		defer r.Close()
		for lines := json.NewDecoder(r); ; {
			var e schemas.FileEntry
			if err := lines.Decode(&e); err != nil {
				yield(e, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// fileReader fetches the content of an out operation.
type fileReader struct {
	files    *Files
	ctx      context.Context
	transfer string
	ended    func()
	stream   bool // a watch: pieces are of any size, and one is asked for at a time

	window  []*events.FileCall
	next    int64 // offset of the next piece to ask for
	full    bool  // a whole piece has come: ask for several
	piece   []byte
	err     error
	isEnded bool
}

func (f *Files) get(ctx context.Context, req *schemas.FileRequest) (io.ReadCloser, error) {
	transfer, _, err := f.begin(ctx, req)
	if err != nil {
		return nil, err
	}
	r := &fileReader{files: f, ctx: ctx, transfer: transfer, ended: f.keep(ctx, transfer, req), stream: req.Op == schemas.FileWatch}
	// The error of an operation that fails at once, such as for a missing file, comes with the first piece.
	if err := r.fetch(); err != nil && !errors.Is(err, io.EOF) {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// Read reads content.
func (r *fileReader) Read(p []byte) (int, error) {
	for len(r.piece) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if err := r.fetch(); err != nil && len(r.piece) == 0 {
			return 0, err
		}
	}
	n := copy(p, r.piece)
	r.piece = r.piece[n:]
	return n, nil
}

// fetch gets the next piece, which may be empty. It sets err, io.EOF with the last one.
func (r *fileReader) fetch() error {
	if r.err != nil {
		return r.err
	}
	r.err = r.ask()
	if r.err != nil {
		return r.err
	}
	a, err := r.answer()
	switch {
	case err != nil:
		r.err = r.files.broken(r.ctx, err)
	case a.Reply != nil && a.Reply.Error != nil:
		r.err = a.Reply.Error
	case a.Reply != nil:
		r.err = schemas.Errorf(schemas.CodeInternal, "the answer has no content")
	default:
		r.piece, r.full = a.Data, true
		if r.stream {
			r.next += int64(len(a.Data))
		}
		if a.End {
			r.err = io.EOF
		}
	}
	return r.err
}

// ask asks for pieces until enough are under way.
func (r *fileReader) ask() error {
	most := 1
	if r.full && !r.stream {
		most = schemas.MaxFileWindow
	}
	for len(r.window) < most {
		if len(r.window) > 0 && !r.files.client.shared.reserve() {
			return nil
		}
		call, err := r.files.client.caller.SendFile(r.files.message(r.transfer, schemas.FileMessage{Offset: r.next}))
		if err != nil {
			if len(r.window) > 0 {
				r.files.client.shared.release()
			}
			return err
		}
		r.window = append(r.window, call)
		if !r.stream {
			r.next += schemas.MaxFilePiece
		}
	}
	return nil
}

// answer waits for the first piece, and asks for all again while none comes.
func (r *fileReader) answer() (schemas.FileAnswer, error) {
	for {
		a, err := waitAnswer(r.ctx, r.window[0])
		if !errors.Is(err, errSilent) {
			r.drop()
			return a, err
		}
		for _, call := range r.window {
			if err := call.Send(); err != nil {
				return a, err
			}
		}
	}
}

// drop closes the first call. All calls but one are for shared pieces.
func (r *fileReader) drop() {
	r.window[0].Close()
	if r.window = r.window[1:]; len(r.window) > 0 {
		r.files.client.shared.release()
	}
}

// Close ends the operation.
func (r *fileReader) Close() error {
	if r.isEnded {
		return nil
	}
	r.isEnded = true
	for len(r.window) > 0 {
		r.drop()
	}
	r.ended()
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	return nil
}
