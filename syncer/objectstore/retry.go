package objectstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/schemas"
)

// RetryPolicy bounds the attempts on an unavailable store. The zero value has the defaults.
type RetryPolicy struct {
	Attempts int           // attempts in all; default 8
	First    time.Duration // the first delay; default 100 ms. It doubles with each attempt, with jitter
	Longest  time.Duration // the longest single delay; default 5 s
}

// Retry returns s with every operation that fails as unavailable repeated under p.
//
// A conditional Put whose response was lost may have taken place, and then returns conflict when it is repeated. The
// caller must distinguish its own write from another's, as the commit of a push does.
func Retry(s Store, p RetryPolicy) Store {
	p.Attempts = cmp.Or(max(p.Attempts, 0), 8)
	p.First = cmp.Or(max(p.First, 0), 100*time.Millisecond)
	p.Longest = cmp.Or(max(p.Longest, 0), 5*time.Second)
	return &retrying{Decorator{Store: s, Do: p.do}}
}

type retrying struct{ Decorator }

// Put implements [Store].
func (r *retrying) Put(ctx context.Context, key string, c Content, cond Condition) (token string, err error) {
	c.Repeat = func(ctx context.Context, request func() error) error {
		err := r.Do(ctx, request)
		if errors.Is(err, schemas.ErrUnavailable) {
			err = &exhausted{err}
		}
		return err
	}
	return r.Decorator.Put(ctx, key, c, cond)
}

func (p RetryPolicy) do(ctx context.Context, request func() error) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(p.First), backoff.WithMaxInterval(p.Longest), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		err := request()
		_, final := errors.AsType[*exhausted](err)
		if err != nil && (final || ctx.Err() != nil || !errors.Is(err, schemas.ErrUnavailable)) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(backoff.WithMaxRetries(b, uint64(p.Attempts-1)), ctx))
}

// exhausted is the error of a part of a request that was repeated as often as the policy allows: the whole is not repeated for it.
type exhausted struct{ error }

func (e *exhausted) Unwrap() error { return e.error }

// List starts again after a failure and skips the keys already yielded, which key order allows. Progress resets the
// attempt count.
func (r *retrying) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		last, further := "", true
		again := func() error {
			for info, err := range r.Store.List(ctx, prefix) {
				if err != nil {
					return err
				}
				if info.Key <= last {
					continue
				}
				last, further = info.Key, true
				if !yield(info, nil) {
					return nil
				}
			}
			return nil
		}
		var err error
		for further {
			further = false
			if err = r.Do(ctx, again); err == nil || ctx.Err() != nil || !errors.Is(err, schemas.ErrUnavailable) {
				break
			}
		}
		if err != nil {
			yield(Info{}, err)
		}
	}
}
