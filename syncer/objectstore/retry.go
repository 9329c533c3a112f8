package objectstore

import (
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

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Attempts <= 0 {
		p.Attempts = 8
	}
	if p.First <= 0 {
		p.First = 100 * time.Millisecond
	}
	if p.Longest <= 0 {
		p.Longest = 5 * time.Second
	}
	return p
}

func (p RetryPolicy) backOff(ctx context.Context) backoff.BackOff {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(p.First), backoff.WithMaxInterval(p.Longest), backoff.WithMaxElapsedTime(0))
	return backoff.WithContext(backoff.WithMaxRetries(b, uint64(p.Attempts-1)), ctx)
}

// Retry returns s with every operation that fails as unavailable repeated under p.
//
// A conditional Put whose response was lost may have taken place, and then returns conflict when it is repeated. The
// caller must distinguish its own write from another's, as the commit of a push does.
func Retry(s Store, p RetryPolicy) Store { return &retrying{Store: s, policy: p.withDefaults()} }

type retrying struct {
	Store
	policy RetryPolicy
}

func (r *retrying) do(ctx context.Context, op func() error) error {
	return backoff.Retry(func() error {
		err := op()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, schemas.ErrUnavailable)) {
			return backoff.Permanent(err)
		}
		return err
	}, r.policy.backOff(ctx))
}

func (r *retrying) Get(ctx context.Context, key string, rng Range, dst []byte) (data []byte, info Info, err error) {
	err = r.do(ctx, func() error {
		data, info, err = r.Store.Get(ctx, key, rng, dst)
		return err
	})
	return data, info, err
}

func (r *retrying) Stat(ctx context.Context, key string) (info Info, err error) {
	err = r.do(ctx, func() error {
		info, err = r.Store.Stat(ctx, key)
		return err
	})
	return info, err
}

func (r *retrying) Put(ctx context.Context, key string, c Content, cond Condition) (token string, err error) {
	err = r.do(ctx, func() error {
		token, err = r.Store.Put(ctx, key, c, cond)
		return err
	})
	return token, err
}

// List starts again after a failure and skips the keys already yielded, which key order allows. Progress resets the
// attempt count.
func (r *retrying) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		last, some, stopped := "", false, false
		further := true
		again := func() error {
			for info, err := range r.Store.List(ctx, prefix) {
				if err != nil {
					return err
				}
				if some && info.Key <= last {
					continue
				}
				last, some, further = info.Key, true, true
				if !yield(info, nil) {
					stopped = true
					return nil
				}
			}
			return nil
		}
		var err error
		for further {
			further = false
			if err = r.do(ctx, again); err == nil || ctx.Err() != nil || !errors.Is(err, schemas.ErrUnavailable) {
				break
			}
		}
		if err != nil && !stopped {
			yield(Info{}, err)
		}
	}
}

func (r *retrying) Delete(ctx context.Context, keys ...string) error {
	return r.do(ctx, func() error { return r.Store.Delete(ctx, keys...) })
}
