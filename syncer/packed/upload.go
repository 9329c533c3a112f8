package packed

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Meter begins to count the work on files. The function it returns adds files that are done, and bytes, which for a large
// file come before that.
type Meter func(phase string, files []*state.Node) (done func(files, bytes int64))

// Layout is the packed layout for one push.
type Layout struct {
	Store    objectstore.Store
	Root     *os.Root
	Index    *ObjectIndex
	Parallel int // uploads at once; 0 is 8
	Meter    Meter
	Note     func(text string) // adds a warning to the report
	// Skip is called for a file that cannot be read.
	Skip  func(path string, err error)
	Sizes StateSizes
}

// Upload stores the content of files and returns what was read of each, in the same order: nil for a file that is gone, or was
// skipped.
// Files whose content is stored, or that remote has for them, are only read. sent is in bytes.
func (l *Layout) Upload(ctx context.Context, files, remote []*state.Node) (results []*worktree.Content, sent int64, err error) {
	group, ctx := errgroup.WithContext(ctx)
	readers := min(len(files), max(2, runtime.GOMAXPROCS(0)))
	parallel := cmp.Or(l.Parallel, 8)
	group.SetLimit(parallel + 1) // the uploads and the reading
	u := &uploader{
		root: l.Root, index: l.Index, ctx: ctx, group: group,
		bufs: make(chan []byte, parallel+1), packing: map[state.Digest]bool{}, done: l.Meter("upload", files), skip: l.Unread,
	}
	for range cap(u.bufs) {
		u.bufs <- nil
	}
	results = make([]*worktree.Content, len(files))
	group.Go(func() error { return u.readAll(files, remote, results, readers) })
	if err := group.Wait(); err != nil {
		return nil, u.sent.Load(), err
	}
	return results, u.sent.Load(), nil
}

// Unread reports whether a file that was not read is gone or cannot be read, after Skip in the latter case.
func (l *Layout) Unread(path string, err error) bool {
	if _, one := errors.AsType[*worktree.UnreadableError](err); one {
		l.Skip(path, err)
		return true
	}
	return worktree.IsGone(err)
}

// KeepRemote has nothing to do: this layout overwrites nothing.
func (l *Layout) KeepRemote(context.Context, []plan.Step) error { return nil }

// Find returns where the content of n is stored.
func (l *Layout) Find(n *state.Node) (state.Location, bool) {
	if n.Kind != state.File || !n.Hashed {
		return state.Location{}, false
	}
	if n.Size == 0 {
		return state.Location{}, true // nothing to store
	}
	return l.Index.find(n.Digest)
}

// SetObjects lists in next the objects that its files refer to.
func (l *Layout) SetObjects(next *state.State) {
	l.Index.mu.Lock()
	defer l.Index.mu.Unlock()
	next.Objects = l.Index.objects
	next.CompactObjects()
}

type member struct {
	digest state.Digest
	offset int64
}

// firstPack is the room of a pack at first, in bytes.
const firstPack = 64 << 10

// uploader reads files and stores their content: small ones in packs, large ones chunk by chunk. The number of buffers
// bounds memory: one more than are sent at a time, so that the next is ready when one has been sent. A reader waits for it.
type uploader struct {
	root  *os.Root
	index *ObjectIndex
	ctx   context.Context
	group *errgroup.Group
	bufs  chan []byte
	sent  atomic.Int64
	done  func(files, bytes int64)
	skip  func(path string, err error) bool

	mu      sync.Mutex
	pack    []byte
	members []member
	packing map[state.Digest]bool
}

// readAll reads the files with several goroutines, then sends the last pack.
func (u *uploader) readAll(files, remote []*state.Node, results []*worktree.Content, readers int) error {
	err := parallel.Run(u.ctx, readers, len(files), func(_ context.Context, indexes iter.Seq[int]) (err error) {
		in := worktree.NewFolders(u.root)
		defer func() { err = errors.Join(err, in.Close()) }()
		scratch := make([]byte, 64<<10)
		for i := range indexes {
			if files[i].Size >= int64(len(scratch)) && len(scratch) <= worktree.SmallFile {
				scratch = make([]byte, worktree.SmallFile+1)
			}
			c, err := u.read(in, files[i], remote[i], scratch)
			if err != nil && u.skip(files[i].Path, err) {
				continue
			}
			if err != nil {
				return err
			}
			results[i] = c
			if c.Stat.Size > worktree.SmallFile {
				u.done(1, 0) // its chunks have been counted
			} else {
				u.done(1, c.Stat.Size)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.flush()
	return nil
}

func (u *uploader) read(in *worktree.Folders, n, remote *state.Node, scratch []byte) (*worktree.Content, error) {
	data, c, fits, err := worktree.ReadSmall(in, n.Path, scratch)
	if err != nil {
		return nil, err
	}
	if fits {
		if now := c.Node(n); remote != nil && state.SameContent(&now, remote) {
			return &c, nil
		}
		return &c, u.addToPack(c.Digest, data)
	}
	sink := &chunks{uploader: u}
	c, err = worktree.ReadChunks(u.root, n.Path, sink)
	sink.wait.Wait()
	if err = errors.Join(err, sink.failed); err != nil {
		return nil, err
	}
	c.Digest = u.index.addChunked(sink.objects)
	return &c, nil
}

// addToPack adds a small file to the pack, which is sent once it is full.
func (u *uploader) addToPack(d state.Digest, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.packing[d] {
		return nil
	}
	if _, ok := u.index.find(d); ok {
		return nil
	}
	if len(u.pack)+len(data) > state.ChunkSize {
		u.flush()
	}
	if u.members == nil {
		buf, err := u.take()
		if err != nil {
			return err
		}
		u.pack = buf[:0]
	}
	u.packing[d] = true
	u.members = append(u.members, member{d, int64(len(u.pack))})
	if need := len(u.pack) + len(data); need > cap(u.pack) { // most pushes are small: a whole chunk costs more than their content
		u.pack = append(make([]byte, 0, min(max(need, 4*cap(u.pack), firstPack), state.ChunkSize)), u.pack...)
	}
	u.pack = append(u.pack, data...)
	return nil
}

// flush sends the pack in the background. The caller holds mu.
func (u *uploader) flush() {
	if len(u.pack) == 0 {
		return
	}
	pack, members := u.pack, u.members
	u.pack, u.members = nil, nil
	u.group.Go(func() error {
		defer u.Release(pack)
		number, err := u.send(pack)
		if err == nil {
			u.index.addPack(number, members)
			u.index.record(number, members)
		}
		return err
	})
}

func (u *uploader) send(data []byte) (uint32, error) {
	number, added, err := u.index.Add(u.ctx, data)
	if added {
		u.sent.Add(int64(len(data)))
		u.index.record(number, nil)
	}
	return number, err
}

// Buffer implements [worktree.ChunkSink].
func (u *uploader) Buffer() ([]byte, error) {
	buf, err := u.take()
	if err != nil {
		return nil, err
	}
	if cap(buf) < state.ChunkSize {
		buf = make([]byte, state.ChunkSize)
	}
	return buf[:state.ChunkSize], nil
}

// take waits for a buffer, which may have room for less than a chunk.
func (u *uploader) take() ([]byte, error) {
	select {
	case buf := <-u.bufs:
		return buf, nil
	case <-u.ctx.Done():
		return nil, u.ctx.Err()
	}
}

// Release implements [worktree.ChunkSink].
func (u *uploader) Release(buf []byte) { u.bufs <- buf[:cap(buf)] }

// chunks receives the chunks of one file, and stores them while the next are being read.
type chunks struct {
	*uploader
	objects []uint32
	failed  error // of a chunk that could not be stored
	lock    sync.Mutex
	wait    sync.WaitGroup
}

// Take implements [worktree.ChunkSink].
func (c *chunks) Take(i int, chunk []byte) {
	if i == 0 {
		c.wait.Wait() // the chunks of an earlier reading of a file that changed meanwhile
		c.objects = c.objects[:0]
	}
	c.lock.Lock()
	c.objects = append(c.objects, 0)
	c.lock.Unlock()
	c.wait.Add(1)
	c.group.Go(func() error {
		defer c.wait.Done()
		defer c.Release(chunk)
		number, err := c.send(chunk)
		c.lock.Lock()
		defer c.lock.Unlock()
		c.objects[i] = number
		if err != nil {
			c.failed = err
		} else {
			c.done(0, int64(len(chunk)))
		}
		return err
	})
}
