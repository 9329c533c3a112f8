package syncer

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// What one request reads of a pack at most, and the gap between wanted parts over which it goes on reading.
const (
	fetchSize = 4 << 20
	fetchGap  = 128 << 10
)

// target is a file to write and where in the stage to write it.
type target struct {
	node *Node
	path string
	from string // the path under which the store has it
}

// part is a piece of an object that a file needs.
type part struct {
	offset, length int64
	digest         Digest
	target         target
	large          *largeFile // nil for a file that is this part alone
	at             int64      // where in the large file
}

// request is one ranged read and the parts it brings.
type request struct {
	object *Object
	offset int64
	length int64
	parts  []part
}

// requests puts the parts of each object together into ranged reads. A part that several files share is read once.
func requests(objects []Object, parts map[uint32][]part) []request {
	numbers := make([]uint32, 0, len(parts))
	for o := range parts {
		numbers = append(numbers, o)
	}
	slices.Sort(numbers)
	var all []request
	for _, o := range numbers {
		list := parts[o]
		slices.SortFunc(list, func(a, b part) int { return int(a.offset - b.offset) })
		var now *request
		for _, p := range list {
			end := p.offset + p.length
			if now == nil || p.offset > now.offset+now.length+fetchGap ||
				end > now.offset+now.length && end-now.offset > fetchSize {
				all = append(all, request{object: &objects[o], offset: p.offset})
				now = &all[len(all)-1]
			}
			now.length = max(now.length, end-now.offset)
			now.parts = append(now.parts, p)
		}
	}
	return all
}

// fetchPacked brings files out of packs and chunks. What arrives is verified before it is written.
func (x *session) fetchPacked(ctx context.Context, s *State, targets []target, done func(files, bytes int64)) error {
	parts := make(map[uint32][]part)
	opener := &folder{root: x.root}
	var large []*largeFile
	var empty []target
	for _, t := range targets {
		n := t.node
		switch objects := n.At.Objects; {
		case n.Size == 0:
			empty = append(empty, t)
		case len(objects) == 1:
			parts[objects[0]] = append(parts[objects[0]],
				part{offset: n.At.Offset, length: n.Size, digest: n.Digest, target: t})
		default:
			digests := make([]Digest, len(objects))
			for i, o := range objects {
				digests[i] = s.Objects[o].Digest
			}
			if seal(digests) != n.Digest {
				return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: its digest is not that of its chunks", clip(n.Path))
			}
			l, err := opener.openLarge(t.path, n, len(objects))
			if err != nil {
				return errors.Join(err, opener.close(), closeAll(large))
			}
			large = append(large, l)
			for i, o := range objects {
				parts[o] = append(parts[o], part{length: s.Objects[o].Size, digest: digests[i], target: t, large: l,
					at: int64(i) * ChunkSize})
			}
		}
	}
	for _, t := range empty {
		if err := opener.writeSmall(t.path, t.node, nil); err != nil {
			return errors.Join(err, opener.close(), closeAll(large))
		}
		done(1, 0)
	}
	if err := opener.close(); err != nil {
		return errors.Join(err, closeAll(large))
	}
	err := x.serve(ctx, requests(s.Objects, parts), done)
	if err != nil {
		return errors.Join(err, closeAll(large))
	}
	return nil
}

// closeAll closes the files that were not finished.
func closeAll(files []*largeFile) error {
	for _, l := range files {
		if l.left.Load() > 0 {
			_ = l.f.Close() // it is thrown away with the stage
		}
	}
	return nil
}

func (x *session) serve(ctx context.Context, all []request, done func(files, bytes int64)) error {
	jobs := make(chan *request)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(jobs)
		for i := range all {
			select {
			case jobs <- &all[i]:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var mu sync.Mutex
	for range min(len(all), x.parallel(x.cfg.Downloads, 8)) {
		group.Go(func() (err error) {
			dir := &folder{root: x.root}
			defer func() { err = errors.Join(err, dir.close()) }()
			var buf []byte // kept from request to request: new ones cost more than what they are filled with
			for r := range jobs {
				if int64(cap(buf)) < r.length {
					buf = make([]byte, 0, max(r.length, fetchSize))
				}
				data, _, err := x.store.Get(ctx, r.object.key(), Range{Offset: r.offset, Length: r.length}, buf[:0])
				if err != nil {
					return fetchError(err, r)
				}
				if err := r.deliver(dir, data, done); err != nil {
					return err
				}
				mu.Lock()
				x.report.BytesRead += int64(len(data))
				mu.Unlock()
			}
			return nil
		})
	}
	return group.Wait()
}

func (r *request) odd(length int64) error {
	return schemas.Errorf(schemas.CodeInternal, "store: %s: %d bytes instead of %d", r.object.key(), length, r.length)
}

func damaged(p *part) error {
	return schemas.Errorf(schemas.CodeInternal, "store: the content of %q is damaged: its digest is another one",
		clip(p.target.node.Path)).With("path", clip(p.target.node.Path))
}

// count notes that a chunk of a large file is there.
func (p *part) count(dir *folder, done func(files, bytes int64)) error {
	finished, err := p.large.done(dir)
	if finished && err == nil {
		done(1, 0)
	}
	return err
}

func fetchError(err error, r *request) error {
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Errorf(schemas.CodeNotFound,
			"store: the content of %q is gone; the version may have been removed meanwhile: %w", clip(r.parts[0].target.node.Path), err)
	}
	return err
}

func (r *request) deliver(dir *folder, data []byte, done func(files, bytes int64)) error {
	if int64(len(data)) != r.length {
		return r.odd(int64(len(data)))
	}
	var last *part
	for i := range r.parts {
		p := &r.parts[i]
		piece := data[p.offset-r.offset:][:p.length]
		// Files of one content share a part, which need not be verified for each of them.
		if last == nil || last.offset != p.offset || last.length != p.length || last.digest != p.digest {
			if Digest(sha256.Sum256(piece)) != p.digest {
				return damaged(p)
			}
		}
		last = p
		if p.large == nil {
			if err := dir.writeSmall(p.target.path, p.target.node, piece); err != nil {
				return err
			}
			done(1, p.length)
			continue
		}
		if err := p.large.write(piece, p.at); err != nil {
			return err
		}
		done(0, p.length)
		if err := p.count(dir, done); err != nil {
			return err
		}
	}
	return nil
}
