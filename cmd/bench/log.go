package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// The output of a round.
const (
	logRounds = 5
	logBlocks = 4096 // of 64 KiB: 256 MiB
	logBytes  = logBlocks * 64 << 10
)

func ddArgs() []string {
	return []string{"if=/dev/zero", "bs=64k", fmt.Sprintf("count=%d", logBlocks), "status=none"}
}

// barePipe is the baseline: the same dd, read from a pipe in blocks of its size, in MB/s.
func barePipe(ctx context.Context) (float64, error) {
	cmd := exec.CommandContext(ctx, "dd", ddArgs()...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	n, err := io.CopyBuffer(onlyWriter{io.Discard}, out, make([]byte, 64<<10))
	if err != nil {
		return 0, err
	}
	if err := cmd.Wait(); err != nil {
		return 0, err
	}
	return megabytes(n, begin), nil
}

// onlyWriter hides the ReaderFrom of a writer, which would read in blocks of another size.
type onlyWriter struct{ io.Writer }

func megabytes(n int64, begin time.Time) float64 {
	return float64(n) / 1e6 / time.Since(begin).Seconds()
}

// livePipe is dd through Sluice to a live follower, in MB/s. It also returns the process.
func livePipe(ctx context.Context, c *client.Client) (speed float64, process string, err error) {
	begin := time.Now()
	x, err := c.ExecStream(ctx, client.Request{Thread: "log", Command: "dd", Args: ddArgs()})
	if err != nil {
		return 0, "", err
	}
	defer x.Close()
	var n int64
	for e, err := range x.Events(ctx) {
		if err != nil {
			return 0, "", err
		}
		if e.Chunk != nil {
			n += int64(len(e.Chunk.Data))
		}
	}
	if n != logBytes {
		return 0, "", fmt.Errorf("got %d bytes of output, want %d", n, logBytes)
	}
	return megabytes(n, begin), x.Process(), nil
}

// storedLog reads the output back from the stream, in MB/s.
func storedLog(ctx context.Context, c *client.Client, process string) (float64, error) {
	begin := time.Now()
	var n int64
	err := c.Logs(ctx, client.LogQuery{Thread: "log", Process: process}, func(k schemas.Chunk) error {
		n += int64(len(k.Data))
		return nil
	})
	if err == nil && n != logBytes {
		err = fmt.Errorf("read %d bytes back, want %d", n, logBytes)
	}
	return megabytes(n, begin), err
}

// logFigure measures dd in rounds: live through Sluice, read back, and bare. It compares what pick picks with the bare pipe.
func logFigure(at place, pick func(live, stored float64) float64) measurement {
	return with(rigAt(at), func(ctx context.Context, b *bench, r *rig) (float64, error) {
		var lives, storeds []float64
		ratio, _, bare, err := compare(ctx, logRounds, func(ctx context.Context) (float64, error) {
			live, process, err := livePipe(ctx, r.client)
			if err != nil {
				return 0, err
			}
			stored, err := storedLog(ctx, r.client, process)
			lives, storeds = append(lives, live), append(storeds, stored)
			return pick(live, stored), err
		}, barePipe)
		if err == nil {
			b.note("live %.0f MB/s, read back %.0f MB/s, bare pipe %.0f MB/s", median(lives), median(storeds), bare)
		}
		return ratio, err
	})
}

// live is the MB/s of dd to a live follower, over those of a bare pipe.
func live(at place) measurement {
	return logFigure(at, func(live, _ float64) float64 { return live })
}

// durable is the MB/s of the same output read back from the stream, over those of a bare pipe.
func durable(at place) measurement {
	return logFigure(at, func(_, stored float64) float64 { return stored })
}
