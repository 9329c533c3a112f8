package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// op is one measured call. It returns the duration of the part that counts.
type op func(ctx context.Context) (time.Duration, error)

// timed measures all of f.
func timed(f func(ctx context.Context) error) op {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := f(ctx)
		return time.Since(begin), err
	}
}

// side is one of two operations to compare, with n calls in each round.
type side struct {
	name string
	n    int
	op   op
}

// p50 is the median duration of n calls, one after the other, in milliseconds.
func (s side) p50(ctx context.Context) (float64, error) {
	took := make([]float64, s.n)
	for i := range took {
		d, err := s.op(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.name, err)
		}
		took[i] = float64(d) / float64(time.Millisecond)
	}
	return median(took), nil
}

// turns measures two sides in turn and returns the median, over the rounds, of the ratio of the first p50 to the second.
func (b *bench) turns(ctx context.Context, rounds int, over, under side) (float64, error) {
	var ratios, overs, unders []float64
	for range rounds {
		u, err := under.p50(ctx)
		if err != nil {
			return 0, err
		}
		o, err := over.p50(ctx)
		if err != nil {
			return 0, err
		}
		ratios, overs, unders = append(ratios, o/u), append(overs, o), append(unders, u)
	}
	b.note("%s %.2f ms, %s %.2f ms (p50)", over.name, median(overs), under.name, median(unders))
	return median(ratios), nil
}

// crowd is one of two operations to compare by rate: n calls in each round, by the functions in each at the same time.
type crowd struct {
	name string
	n    int
	each []func(context.Context) error
}

// alike is a crowd of callers with one function.
func alike(name string, n, callers int, f func(context.Context) error) crowd {
	return crowd{name, n, slices.Repeat([]func(context.Context) error{f}, callers)}
}

// perSecond is the rate of the calls.
func (c crowd) perSecond(ctx context.Context) (float64, error) {
	var left atomic.Int64
	left.Store(int64(c.n))
	var all sync.WaitGroup
	errs := make([]error, len(c.each))
	begin := time.Now()
	for i, f := range c.each {
		all.Go(func() {
			for left.Add(-1) >= 0 && errs[i] == nil {
				errs[i] = f(ctx)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("%s: %w", c.name, err)
	}
	return float64(c.n) / time.Since(begin).Seconds(), nil
}

// rates measures two crowds in turn and returns the median, over the rounds, of the ratio of the first rate to the second.
func (b *bench) rates(ctx context.Context, rounds int, over, under crowd) (float64, error) {
	var ratios, overs, unders []float64
	for range rounds {
		u, err := under.perSecond(ctx)
		if err != nil {
			return 0, err
		}
		o, err := over.perSecond(ctx)
		if err != nil {
			return 0, err
		}
		ratios, overs, unders = append(ratios, o/u), append(overs, o), append(unders, u)
	}
	b.note("%s at %d: %.0f/s, %s at %d: %.0f/s", over.name, len(over.each), median(overs), under.name, len(under.each), median(unders))
	return median(ratios), nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	switch n := len(s); {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	default:
		return (s[n/2-1] + s[n/2]) / 2
	}
}
