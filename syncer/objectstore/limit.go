package objectstore

import (
	"context"
	"io"
	"time"

	"golang.org/x/time/rate"
)

// Limit returns s with bounds on the bytes that it sends and receives in a second, over all requests together; 0 is no bound. It belongs
// inside of [Retry], since a repeated request sends its content again.
func Limit(s Store, send, receive int64) Store {
	if send <= 0 && receive <= 0 {
		return s
	}
	return &limited{Store: s, send: newBucket(send), receive: newBucket(receive)}
}

type limited struct {
	Store
	send, receive *bucket
}

// bucket holds the bytes that may pass now: those of a tenth of a second at most. nil is no bound.
type bucket struct {
	limiter *rate.Limiter
	most    int
}

func newBucket(perSecond int64) *bucket {
	if perSecond <= 0 {
		return nil
	}
	most := int(max(perSecond/10, 1))
	return &bucket{rate.NewLimiter(rate.Limit(perSecond), most), most}
}

func (b *bucket) pass(ctx context.Context, n int64) error {
	for b != nil && n > 0 {
		piece := min(n, int64(b.most))
		r := b.limiter.ReserveN(time.Now(), int(piece))
		timer := time.NewTimer(r.Delay())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		n -= piece
	}
	return nil
}

// Get implements [Store].
func (l *limited) Get(ctx context.Context, key string, r Range, dst []byte) ([]byte, Info, error) {
	if err := l.receive.pass(ctx, r.Length); err != nil {
		return nil, Info{}, err
	}
	data, info, err := l.Store.Get(ctx, key, r, dst)
	if err == nil && r.Length == 0 { // the length was not known before
		err = l.receive.pass(ctx, int64(len(data)))
	}
	return data, info, err
}

// Put implements [Store].
func (l *limited) Put(ctx context.Context, key string, c Content, cond Condition) (string, error) {
	if l.send != nil {
		c.Reader = &limitedReader{ctx, c.Reader, l.send}
	}
	return l.Store.Put(ctx, key, c, cond)
}

type limitedReader struct {
	ctx context.Context
	io.ReaderAt
	bucket *bucket
}

// ReadAt implements [io.ReaderAt].
func (r *limitedReader) ReadAt(p []byte, at int64) (n int, err error) {
	n, err = r.ReaderAt.ReadAt(p, at)
	if waited := r.bucket.pass(r.ctx, int64(n)); waited != nil {
		return 0, waited
	}
	return n, err // io.EOF as it is
}
