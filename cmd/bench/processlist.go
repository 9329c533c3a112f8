package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	listFew     = 100
	listMany    = 100_000
	listThreads = 10
	listRounds  = 5
	listCalls   = 40
)

// fill puts that many records on file, each the end of a process. Their threads take turns.
func fill(ctx context.Context, r *rig, records int) error {
	const atOnce = 1000
	var waits []func(context.Context) (uint64, error)
	for i := range records {
		process := fmt.Sprintf("p%d", i)
		wait, err := r.worker.Worker().Records.AppendAsync(&schemas.Event{
			SpecVersion: schemas.EventSpecVersion, ID: process, Source: "bench", Type: schemas.TypeProcessExited, Subject: process, Time: time.Now().UTC(),
			Tenant: schemas.DefaultTenant, Thread: fmt.Sprintf("t%d", i%listThreads), Process: process,
			Data: []byte(`{"reason":"exited","stdout":"ok\n","command":"make"}`),
		}, 0)
		if err != nil {
			return err
		}
		if waits = append(waits, wait); len(waits) < atOnce && i < records-1 {
			continue
		}
		for _, wait := range waits {
			if _, err := wait(ctx); err != nil {
				return err
			}
		}
		waits = waits[:0]
	}
	return nil
}

// processList is the p50 of a list with many processes on file over that with few: of those that run, of all, and of a thread's; the
// worst counts.
func processList(ctx context.Context, b *bench) (worst float64, err error) {
	var rigs [2]*rig
	for i, n := range []int{listFew, listMany} {
		if rigs[i], err = rigAt(inProcess)(b, ctx); err != nil {
			return 0, err
		}
		if err := fill(ctx, rigs[i], n); err != nil {
			return 0, fmt.Errorf("store %d records: %w", n, err)
		}
	}
	for _, q := range []struct {
		name  string
		query client.ProcessQuery
		want  int
		calls int
	}{
		{"running", client.ProcessQuery{}, 0, 20 * listCalls}, // much faster than the others
		{"all", client.ProcessQuery{All: true, Limit: listFew}, listFew, listCalls},
		{"all of a thread", client.ProcessQuery{All: true, Thread: "t3", Limit: listFew / listThreads}, listFew / listThreads, listCalls},
	} {
		list := func(r *rig, n int) side {
			return side{fmt.Sprintf("%s, %d on file", q.name, n), q.calls, timed(func(ctx context.Context) error {
				got, err := r.client.Processes(ctx, q.query)
				if err == nil && len(got) != q.want {
					err = fmt.Errorf("%d processes are listed, want %d", len(got), q.want)
				}
				return err
			})}
		}
		ratio, err := b.turns(ctx, listRounds, list(rigs[1], listMany), list(rigs[0], listFew))
		if err != nil {
			return 0, err
		}
		worst = max(worst, ratio)
	}
	return worst, nil
}
