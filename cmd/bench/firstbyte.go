package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"time"

	"github.com/sluice-dev/sluice/client"
)

// firstByte is the p50 from exec of `echo` to its first byte of output at the client, over that of bare fork and exec.
func firstByte(ctx context.Context, b *bench, r *rig) (float64, error) {
	ours := side{"first byte of echo", latencyRuns, sluiceFirstByte(r.client)}
	if _, err := (side{"warm up", warmUp, ours.op}).p50(ctx); err != nil {
		return 0, err
	}
	return b.turns(ctx, latencyRounds, ours, side{"bare", latencyRuns, bareFirstByte})
}

func bareFirstByte(ctx context.Context) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "echo", "x")
	begin := time.Now()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(out, make([]byte, 1))
	took := time.Since(begin)
	return took, errors.Join(err, cmd.Wait())
}

func sluiceFirstByte(c *client.Client) op {
	return func(ctx context.Context) (took time.Duration, err error) {
		begin := time.Now()
		x, err := c.ExecStream(ctx, client.Request{Thread: "first", Command: "echo", Args: []string{"x"}})
		if err != nil {
			return 0, err
		}
		defer x.Close()
		for e, err := range x.Events(ctx) { // to the end: the next one must not run beside it
			if err != nil {
				return 0, err
			}
			if e.Chunk != nil && took == 0 {
				took = time.Since(begin)
			}
		}
		if took == 0 {
			return 0, errors.New("echo printed nothing")
		}
		return took, nil
	}
}

// localOverRemote is the p50 of exec `true` with the server in this process, over that with one in another process over loopback TCP.
func localOverRemote(ctx context.Context, b *bench) (float64, error) {
	var sides [2]side
	for i, at := range []place{inProcess, overTCP} {
		r, err := rigAt(at)(b, ctx)
		if err != nil {
			return 0, err
		}
		sides[i] = side{[]string{"local exec true", "remote exec true"}[i], latencyRuns, timed(sluiceTrue(r.client, "sdk"))}
		if _, err := (side{"warm up", warmUp, sides[i].op}).p50(ctx); err != nil {
			return 0, err
		}
	}
	return b.turns(ctx, latencyRounds, sides[0], sides[1])
}
