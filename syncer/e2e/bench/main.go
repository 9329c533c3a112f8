package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
)

func main() {
	gateway.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{}
	var dir string
	flag.StringVar(&b.sluice, "sluice", "", "the sluice binary (required)")
	flag.StringVar(&b.rclone, "rclone", "rclone", "the rclone binary; \"\" prints only seconds")
	flag.StringVar(&b.s5cmd, "s5cmd", "", "the s5cmd binary; \"\" leaves it out")
	flag.StringVar(&dir, "dir", "", "parent folder of the data (default the system's temporary folder)")
	flag.IntVar(&b.runs, "runs", 3, "runs of each workload, of which the median is printed")
	flag.StringVar(&b.only, "only", "", "run only the workloads whose name contains this")
	flag.Parse()
	if err := b.main(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) main(ctx context.Context, dir string) error {
	if b.sluice == "" {
		return fmt.Errorf("no sluice binary given: use -sluice PATH")
	}
	for _, tool := range []*string{&b.sluice, &b.rclone, &b.s5cmd} {
		if *tool == "" {
			continue
		}
		found, err := exec.LookPath(*tool)
		if err != nil {
			return fmt.Errorf("%w: install the peers with go install github.com/rclone/rclone@v1.75.1, "+
				"go install github.com/peak/s5cmd/v2@v2.3.0", err)
		}
		if *tool, err = filepath.Abs(found); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(dir, "bench-sync-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b.dir = dir
	if b.server, err = gateway.Start(filepath.Join(dir, "server")); err != nil {
		return err
	}
	defer func() { _ = b.server.Stop() }()
	for _, w := range workloads() {
		if !strings.Contains(w.name, b.only) {
			continue
		}
		if err := b.measure(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}
