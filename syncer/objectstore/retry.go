package objectstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/schemas"
)

// RetryPolicy bounds the attempts on an unavailable store. The zero value has the defaults.
type RetryPolicy struct {
	Attempts int           // attempts of each request in all; default any number within Patience
	Patience time.Duration // how long a request is repeated after its first failure; default 5 min
	// Unknown is the patience with a store that has not answered yet, of which the address may be wrong; default 10 s.
	Unknown time.Duration
	First   time.Duration // the first delay; default 100 ms. It doubles with each attempt, with jitter
	Longest time.Duration // the longest single delay; default 10 s
}

// backoffFactor is by how much each delay is longer than the one before.
const backoffFactor = 2

// Retry returns s with every operation that fails as unavailable repeated under p.
//
// A conditional Put whose response was lost may have taken place, and then returns conflict when it is repeated. The
// caller must distinguish its own write from another's, as the commit of a push does.
func Retry(s Store, p RetryPolicy) Store {
	p.Attempts = max(p.Attempts, 0)
	p.Patience = cmp.Or(max(p.Patience, 0), 5*time.Minute)
	p.Unknown = cmp.Or(max(p.Unknown, 0), 10*time.Second)
	p.First = cmp.Or(max(p.First, 0), 100*time.Millisecond)
	p.Longest = cmp.Or(max(p.Longest, 0), 10*time.Second)
	r := &retrying{policy: p}
	r.Decorator = Decorator{Store: s, Do: r.do}
	return r
}

type retrying struct {
	Decorator
	policy   RetryPolicy
	answered atomic.Bool // the store has answered a request
}

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

// do runs a request until it does not fail as unavailable, or the policy ends.
func (r *retrying) do(ctx context.Context, request func() error) error {
	p := &r.policy
	delays := backoff.NewExponentialBackOff(backoff.WithInitialInterval(p.First), backoff.WithMultiplier(backoffFactor),
		backoff.WithMaxInterval(p.Longest))
	var policy backoff.BackOff = delays
	if p.Attempts > 0 {
		policy = backoff.WithMaxRetries(policy, uint64(p.Attempts-1))
	}
	failed := false
	return backoff.Retry(func() error {
		err := request()
		_, final := errors.AsType[*exhausted](err)
		if !errors.Is(err, schemas.ErrUnavailable) {
			final = true
			r.answered.Store(true)
		}
		switch {
		case err == nil:
			return nil
		case final || ctx.Err() != nil:
			return backoff.Permanent(err)
		case !failed: // the time counts from here
			failed = true
			delays.MaxElapsedTime = p.Unknown
			if r.answered.Load() {
				delays.MaxElapsedTime = p.Patience
			}
			delays.MaxInterval = min(p.Longest, delays.MaxElapsedTime/5) // a longer one would end the patience early
			delays.Reset()
		}
		return err
	}, backoff.WithContext(policy, ctx))
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

// readTries is how often content is read that is not what was stored.
const readTries = 3

// Reread runs read again when it fails as damaged, a few times: a bit may have been flipped on its way.
func Reread(read func() error) (err error) {
	for range readTries {
		if err = read(); !errors.Is(err, schemas.ErrDamaged) {
			return err
		}
	}
	return err
}
