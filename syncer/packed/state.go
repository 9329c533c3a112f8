package packed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
)

// ErrSegmentMissing is a corrupt state of which a segment is not in the store. A state that was replaced meanwhile has others.
var ErrSegmentMissing = fmt.Errorf("%w: a segment is missing", state.ErrCorrupt)

// ReadState returns the state of which data is the root. It takes segments from known, which may have nil, where one has them, and
// fetches the others, an object in one request.
//
// Errors: those of [state.Decode]; a segment that is missing or damaged is damage of the state.
func ReadState(ctx context.Context, store objectstore.Store, data []byte, known []*state.State, limits state.Limits,
	requests int) (*state.State, error) {
	root, err := state.DecodeRoot(data, limits)
	if err != nil {
		return nil, err
	}
	g := root.Segments()
	spans := make([]span, len(g.Objects))
	from := make([]*state.State, len(g.List)) // nil for what is to be fetched
	for i := range g.List {
		if k := slices.IndexFunc(known, func(s *state.State) bool { return root.Has(i, s) }); k >= 0 {
			from[i] = known[k]
		} else {
			spans[g.List[i].Object].add(&g.List[i])
		}
	}
	if err := fetchSpans(ctx, store, g.Objects, spans, requests); err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "store: %w", err)
	}
	defer dec.Close()
	var buf []byte
	for i := range g.List {
		if from[i] != nil {
			root.Reuse(from[i])
			continue
		}
		p := &g.List[i]
		if int64(cap(buf)) < p.Bytes {
			buf = make([]byte, 0, p.Bytes)
		}
		buf, err = dec.DecodeAll(spans[p.Object].of(p), buf[:0:p.Bytes])
		if err != nil || int64(len(buf)) != p.Bytes {
			return nil, state.Corrupt("the segment from %q on does not have the %d bytes of the state: %v", state.Clip(p.First), p.Bytes, err)
		}
		if err := root.Add(buf); err != nil {
			return nil, err
		}
	}
	return root.State()
}

// span is the part of an object to fetch, with its segments.
type span struct {
	from, to int64
	segments []*state.Segment
	data     []byte
}

func (p *span) add(s *state.Segment) {
	if len(p.segments) == 0 {
		p.from = s.Offset
	}
	p.from, p.to = min(p.from, s.Offset), max(p.to, s.Offset+s.Size)
	p.segments = append(p.segments, s)
}

func (p *span) of(s *state.Segment) []byte { return p.data[s.Offset-p.from:][:s.Size] }

// fetch reads the span, and again where a bit was flipped on its way.
func (p *span) fetch(ctx context.Context, store objectstore.Store, key string) error {
	err := objectstore.Reread(func() (err error) {
		p.data, _, err = store.Get(ctx, key, objectstore.Range{Offset: p.from, Length: p.to - p.from}, nil)
		for _, s := range p.segments {
			if err == nil && (int64(len(p.data)) != p.to-p.from || sha256.Sum256(p.of(s)) != s.Digest) {
				err = state.Corrupt("the segment from %q on is not what was stored", state.Clip(s.First))
			}
		}
		return err
	})
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return schemas.Errorf(schemas.CodeDamaged, "store: %s: %w", key, ErrSegmentMissing)
	case errors.Is(err, schemas.ErrDamaged) && !errors.Is(err, state.ErrCorrupt): // it ends before the span
		return state.Corrupt("a segment is torn: %v", err)
	}
	return err
}

func fetchSpans(ctx context.Context, store objectstore.Store, objects []state.Object, spans []span, requests int) error {
	return parallel.Run(ctx, cmp.Or(requests, 8), len(spans), func(ctx context.Context, indexes iter.Seq[int]) error {
		for i := range indexes {
			if len(spans[i].segments) == 0 {
				continue
			}
			if err := spans[i].fetch(ctx, store, objects[i].Key()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Compressor compresses states and segments. It is used one after the other; its zero value is ready to use.
type Compressor struct{ encoder *zstd.Encoder }

// Compress returns data compressed.
func (c *Compressor) Compress(data []byte) (out []byte, err error) {
	if c.encoder == nil {
		if c.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
	}
	return c.encoder.EncodeAll(data, make([]byte, 0, len(data)/2)), nil
}
