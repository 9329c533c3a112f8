package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// limits are the sizes of the cell's streams, which faults shrink.
type limits struct {
	js  jetstream.JetStream
	own map[string]int64 // bytes, as the workers made the streams

	mu     sync.Mutex
	shrunk map[string]bool
}

func newLimits(ctx context.Context, js jetstream.JetStream) (*limits, error) {
	l := &limits{js: js, own: make(map[string]int64), shrunk: make(map[string]bool)}
	for _, name := range []string{"CMD", "EVT", "LOG"} {
		s, err := js.Stream(ctx, streamName(name))
		if err != nil {
			return nil, fmt.Errorf("read the limit of %s: %w", name, err)
		}
		l.own[name] = s.CachedInfo().Config.MaxBytes
	}
	return l, nil
}

// full shrinks a stream to a little more than it has, and LOG to half of it, for a while.
func full(name string) func(context.Context, *cell, *clients, fault) bool {
	return func(_ context.Context, c *cell, _ *clients, f fault) bool {
		l := c.limits
		if !l.begin(name) {
			return false
		}
		defer l.end(name)
		bytes, err := l.shrink(c.life, name)
		if err == nil {
			c.say(f, fmt.Sprintf("%d bytes", bytes))
			f.wait(c.life)
		}
		_ = l.restore(c.life, name) // also after an error, which leaves the outcome open; its own error is that of the life
		return err == nil
	}
}

func (l *limits) begin(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := !l.shrunk[name]
	l.shrunk[name] = true
	return free
}

func (l *limits) end(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shrunk[name] = false
}

func (l *limits) shrink(ctx context.Context, name string) (bytes int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := l.js.Stream(ctx, streamName(name))
	if err != nil {
		return 0, err
	}
	small := s.CachedInfo().Config
	small.MaxBytes = int64(s.CachedInfo().State.Bytes) + 16<<10
	if name == "LOG" {
		small.MaxBytes /= 2
	}
	_, err = l.js.UpdateStream(ctx, small)
	return small.MaxBytes, err
}

// restore gives a stream its own limit again; the servers may be down for a while.
func (l *limits) restore(ctx context.Context, name string) error {
	for {
		err := l.tryRestore(ctx, name)
		if err == nil {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("restore the limit of %s: %w", name, err)
		}
	}
}

func (l *limits) tryRestore(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := l.js.Stream(ctx, streamName(name))
	if err != nil {
		return err
	}
	own := s.CachedInfo().Config
	own.MaxBytes = l.own[name]
	_, err = l.js.UpdateStream(ctx, own)
	return err
}
