package syncer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// packLimit is the largest file that goes into a pack; a larger one has objects of its own.
const packLimit = 1 << 20

// shelf is what of the packed layout is known to be stored: what the remote state refers to, and what this push has
// added under the same generation. Nothing else may be relied on to stay.
type shelf struct {
	store      Store
	generation uint64
	push       string // see [Object].Push

	mu      sync.Mutex
	objects []Object
	byHash  map[Digest]uint32   // objects by their digest
	files   map[Digest]Location // whole files by theirs
	added   map[Digest]bool     // objects that this push has stored
}

func newShelf(store Store, s *State, push string) *shelf {
	h := &shelf{
		store: store, generation: s.Generation, push: push,
		objects: append(make([]Object, 0, len(s.Objects)+16), s.Objects...),
		byHash:  make(map[Digest]uint32, len(s.Objects)+16),
		files:   make(map[Digest]Location, len(s.Nodes)),
		added:   map[Digest]bool{},
	}
	for i := range s.Objects {
		h.byHash[s.Objects[i].Digest] = uint32(i)
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == File && len(n.At.Objects) > 0 {
			h.files[n.Digest] = n.At
		}
	}
	return h
}

func (h *shelf) file(d Digest) (Location, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.files[d]
	return at, ok
}

// add stores data as an object, unless it is there, and gives its number.
func (h *shelf) add(ctx context.Context, data []byte) (uint32, bool, error) {
	d := Digest(sha256.Sum256(data))
	h.mu.Lock()
	at, ok := h.byHash[d]
	h.mu.Unlock()
	if ok {
		return at, false, nil
	}
	o := Object{Digest: d, Size: int64(len(data)), Generation: h.generation, Push: h.push}
	sum := [sha256.Size]byte(d)
	c := Content{Reader: bytes.NewReader(data), Size: o.Size, SHA256: &sum}
	if _, err := h.store.Put(ctx, o.key(), c, Condition{}); err != nil {
		return 0, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at = uint32(len(h.objects))
	h.objects = append(h.objects, o)
	h.byHash[d] = at
	h.added[d] = true
	return at, true, nil
}

// member is a file in the pack being filled.
type member struct {
	digest Digest
	offset int64
}

// uploader reads files and stores their content: small ones gathered into packs, large ones chunk by chunk. Memory is
// bounded by the number of buffers, and a reader waits when they are all on their way to the store.
type uploader struct {
	root  *os.Root
	shelf *shelf
	group *errgroup.Group
	ctx   context.Context
	jobs  chan func() error
	bufs  chan []byte
	sent  atomic.Int64
	done  func(files, bytes int64)

	mu      sync.Mutex
	pack    []byte
	members []member
	packing map[Digest]bool
}

// upload stores what the given files hold and says what that was, in the same order: nil for one that went away.
// Files that turn out to hold what is stored already, or what was has for them, are only read.
func upload(ctx context.Context, root *os.Root, shelf *shelf, files, was []*Node, parallel int,
	done func(files, bytes int64)) (results []*content, sent int64, err error) {
	group, ctx := errgroup.WithContext(ctx)
	readers := min(len(files), max(2, runtime.GOMAXPROCS(0)))
	u := &uploader{
		root: root, shelf: shelf, group: group, ctx: ctx, jobs: make(chan func() error),
		bufs: make(chan []byte, readers+parallel+1), packing: map[Digest]bool{},
		done: done,
	}
	for range cap(u.bufs) {
		u.bufs <- nil
	}
	results = make([]*content, len(files))
	for range parallel {
		group.Go(func() error {
			for job := range u.jobs {
				if err := job(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(u.jobs)
		return u.readAll(files, was, results, readers, done)
	})
	if err := group.Wait(); err != nil {
		return nil, u.sent.Load(), err
	}
	return results, u.sent.Load(), nil
}

// readAll reads the files with several goroutines, then sends the last pack.
func (u *uploader) readAll(files, was []*Node, results []*content, readers int, done func(files, bytes int64)) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(u.ctx)
	for range readers {
		group.Go(func() error {
			scratch := make([]byte, 64<<10)
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return nil
				}
				if files[i].Size >= int64(len(scratch)) && len(scratch) <= packLimit {
					scratch = make([]byte, packLimit+1)
				}
				c, err := u.read(files[i], was[i], scratch)
				if missing(err) {
					continue
				}
				if err != nil {
					return err
				}
				results[i] = c
				if c.stat.Size > packLimit {
					done(1, 0) // its chunks have been counted
				} else {
					done(1, c.stat.Size)
				}
			}
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.flush()
}

func (u *uploader) read(n, was *Node, scratch []byte) (*content, error) {
	data, c, fits, err := readSmallFile(u.root, n.Path, scratch)
	if err != nil {
		return nil, err
	}
	if fits {
		if now := c.node(n); was != nil && sameContent(&now, was) {
			return &c, nil
		}
		return &c, u.gather(c.digest, data)
	}
	in := &chunked{uploader: u}
	c, err = readFile(u.root, n.Path, in)
	in.wait.Wait()
	if err = errors.Join(err, in.failed); err != nil {
		return nil, joined(err)
	}
	digests := make([]Digest, len(in.at))
	u.shelf.mu.Lock()
	defer u.shelf.mu.Unlock()
	for i, o := range in.at {
		digests[i] = u.shelf.objects[o].Digest
	}
	c.digest = sha256.Sum256(nil)
	if len(digests) > 0 {
		c.digest = seal(digests)
		u.shelf.files[c.digest] = Location{Objects: in.at}
	}
	return &c, nil
}

// gather puts a small file into the pack, which is sent once it is full.
func (u *uploader) gather(d Digest, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.packing[d] {
		return nil
	}
	if _, ok := u.shelf.file(d); ok {
		return nil
	}
	if len(u.pack)+len(data) > ChunkSize {
		if err := u.flush(); err != nil {
			return err
		}
	}
	if u.pack == nil {
		buf, err := u.room()
		if err != nil {
			return err
		}
		u.pack = buf[:0]
	}
	u.packing[d] = true
	u.members = append(u.members, member{d, int64(len(u.pack))})
	u.pack = append(u.pack, data...)
	return nil
}

// flush hands the pack to be sent. The caller holds mu.
func (u *uploader) flush() error {
	if len(u.pack) == 0 {
		return nil
	}
	pack, members := u.pack, u.members
	u.pack, u.members = nil, nil
	return u.submit(func() error {
		defer u.drop(pack)
		at, err := u.send(pack)
		if err != nil {
			return err
		}
		u.shelf.mu.Lock()
		defer u.shelf.mu.Unlock()
		for _, m := range members {
			u.shelf.files[m.digest] = Location{Objects: []uint32{at}, Offset: m.offset}
		}
		return nil
	})
}

func (u *uploader) send(data []byte) (uint32, error) {
	at, added, err := u.shelf.add(u.ctx, data)
	if added {
		u.sent.Add(int64(len(data)))
	}
	return at, err
}

func (u *uploader) submit(job func() error) error {
	select {
	case u.jobs <- job:
		return nil
	case <-u.ctx.Done():
		return u.ctx.Err()
	}
}

func (u *uploader) room() ([]byte, error) {
	select {
	case buf := <-u.bufs:
		if buf == nil {
			buf = make([]byte, ChunkSize)
		}
		return buf[:ChunkSize], nil
	case <-u.ctx.Done():
		return nil, u.ctx.Err()
	}
}

func (u *uploader) drop(buf []byte) { u.bufs <- buf[:cap(buf)] }

// chunked takes the chunks of one file, and stores them while the next are being read.
type chunked struct {
	*uploader
	at     []uint32
	failed error // of a chunk that could not be stored
	lock   sync.Mutex
	wait   sync.WaitGroup
}

func (c *chunked) take(i int, chunk []byte) error {
	if i == 0 {
		c.wait.Wait() // the chunks of an earlier reading of a file that changed meanwhile
		c.at = c.at[:0]
	}
	c.lock.Lock()
	c.at = append(c.at, 0)
	c.lock.Unlock()
	c.wait.Add(1)
	err := c.submit(func() error {
		defer c.wait.Done()
		defer c.drop(chunk)
		at, err := c.send(chunk)
		c.lock.Lock()
		defer c.lock.Unlock()
		c.at[i] = at
		if err != nil {
			c.failed = err
		} else {
			c.done(0, int64(len(chunk)))
		}
		return err
	})
	if err != nil {
		c.wait.Done()
	}
	return err
}
