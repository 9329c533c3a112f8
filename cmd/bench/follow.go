package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// What the followers follow: 1 MB/s for 20 s.
const (
	followers    = 100
	followSteps  = 200
	followStep   = 100_000 // bytes, each tenth of a second
	followRounds = 1
)

var errLeft = errors.New("the follower has left")

// followMany is the run time of a process that prints 1 MB/s for 20 s while 100 follow it, one of whom stops to read, over its run time
// without a follower. Every other one must get every byte.
func followMany(ctx context.Context, b *bench, r *rig) (float64, error) {
	ratio, with, alone, err := compare(ctx, followRounds,
		func(ctx context.Context) (float64, error) { return followed(ctx, r.client, followers) },
		func(ctx context.Context) (float64, error) { return followed(ctx, r.client, 0) })
	if err == nil {
		b.note("%.2f s with %d followers, %.2f s alone", with, followers, alone)
	}
	return ratio, err
}

// followed is the run time of the process, as its result says, in seconds.
func followed(ctx context.Context, c *client.Client, n int) (float64, error) {
	pace := `i=0; while [ $i -lt %d ]; do head -c %d /dev/zero; i=$((i+1)); sleep 0.1; done`
	p, err := c.StartProcess(ctx, client.Request{Thread: "follow", Command: "sh", Args: []string{"-c", fmt.Sprintf(pace, followSteps, followStep)}})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, n)
	ended := make(chan struct{})
	for i := range n {
		all.Go(func() {
			if i == 0 { // it is stopped until the end
				_ = c.Logs(ctx, client.LogQuery{Thread: "follow", Process: p.ID(), Follow: true}, func(schemas.Chunk) error {
					<-ended
					return errLeft
				})
				return
			}
			errs[i] = followWhole(ctx, c, p.ID())
		})
	}
	result, err := p.Wait(ctx)
	close(ended)
	if err != nil {
		cancel()
	}
	all.Wait()
	if err = errors.Join(errors.Join(errs...), err); err != nil {
		return 0, err
	}
	return result.DurationMS / 1000, nil
}

// followWhole follows the process, and checks that every byte comes. A request that fails on a loaded machine does not end it: it goes on
// after its last chunk.
func followWhole(ctx context.Context, c *client.Client, process string) error {
	for got, from := int64(0), uint64(0); ; {
		err := c.Logs(ctx, client.LogQuery{Thread: "follow", Process: process, From: from, Follow: true}, func(k schemas.Chunk) error {
			if k.Stream != schemas.Stdout || k.Offset != got {
				return fmt.Errorf("a chunk of %s begins at %d, want %d", k.Stream, k.Offset, got)
			}
			got, from = k.End(), k.Seq+1
			return nil
		})
		switch {
		case ctx.Err() == nil && (errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded)):
		case err == nil && got != followSteps*followStep:
			return fmt.Errorf("a follower got %d bytes, want %d", got, followSteps*followStep)
		default:
			return err
		}
	}
}
