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

// compare measures two values in turn. It returns the median, over the rounds, of the ratio of the first to the second, and the median
// of each.
func compare(ctx context.Context, rounds int, over, under func(context.Context) (float64, error)) (ratio, o, u float64, err error) {
	var ratios, overs, unders []float64
	for range rounds {
		u, err := under(ctx)
		if err != nil {
			return 0, 0, 0, err
		}
		o, err := over(ctx)
		if err != nil {
			return 0, 0, 0, err
		}
		ratios, overs, unders = append(ratios, o/u), append(overs, o), append(unders, u)
	}
	return median(ratios), median(overs), median(unders), nil
}

// turns compares the p50 of two sides.
func (b *bench) turns(ctx context.Context, rounds int, over, under side) (float64, error) {
	ratio, o, u, err := compare(ctx, rounds, over.p50, under.p50)
	if err == nil {
		b.note("%s %.2f ms, %s %.2f ms (p50)", over.name, o, under.name, u)
	}
	return ratio, err
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

func (b *bench) rates(ctx context.Context, rounds int, over, under crowd) (float64, error) {
	ratio, o, u, err := compare(ctx, rounds, over.perSecond, under.perSecond)
	if err == nil {
		b.note("%s at %d: %.0f/s, %s at %d: %.0f/s", over.name, len(over.each), o, under.name, len(under.each), u)
	}
	return ratio, err
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
