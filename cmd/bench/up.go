package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const upRounds = 9

// upReady is the time until `sluice up` on an empty folder accepts commands, over the start of a plain NATS server with JetStream, each
// in its own process.
func upReady(ctx context.Context, b *bench) (float64, error) {
	dir, err := b.folder()
	if err != nil {
		return 0, err
	}
	sluice := filepath.Join(dir, "sluice")
	build := exec.CommandContext(ctx, "go", "build", "-o", sluice, "./cmd/sluice")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("build sluice, which needs the repository's root as the working folder: %w", err)
	}
	var ratios, ours, bares []float64
	for i := range upRounds {
		bareDir := filepath.Join(dir, fmt.Sprintf("bare%d", i))
		begin := time.Now()
		stop, _, err := b.child(ctx, modeBare, bareDir)
		if err != nil {
			return 0, err
		}
		bare := time.Since(begin).Seconds()
		if err := stop(); err != nil {
			return 0, err
		}
		cmd := exec.CommandContext(ctx, sluice, "up", "--provider", "local", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, fmt.Sprintf("up%d", i)))
		begin = time.Now()
		stop, _, err = startServer(ctx, cmd)
		if err != nil {
			return 0, err
		}
		our := time.Since(begin).Seconds()
		if err := stop(); err != nil {
			return 0, err
		}
		ratios, ours, bares = append(ratios, our/bare), append(ours, our), append(bares, bare)
	}
	b.note("sluice up %.0f ms, bare server %.0f ms", 1000*median(ours), 1000*median(bares))
	return median(ratios), nil
}
