package main

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
)

// Sync 14: progress has a rate, and the time that is left at it.
func TestProgressLine(t *testing.T) {
	t.Parallel()
	at := syncer.Progress{Phase: "upload", Files: 1, FilesTotal: 4, Bytes: 10 << 20, BytesTotal: 40 << 20}
	testkit.Equal(t, "line", progressLine(at, 5*time.Second), "upload: 1 of 4 files, 10.0 MiB of 40.0 MiB, 2.0 MiB/s, 15s left")
	at.Bytes = 0
	testkit.Equal(t, "line at the beginning", progressLine(at, 5*time.Second), "upload: 1 of 4 files, 0 B of 40.0 MiB")
	at.Bytes = 50 << 20 // a file that has grown
	testkit.Equal(t, "line past the end", progressLine(at, 25*time.Second), "upload: 1 of 4 files, 50.0 MiB of 40.0 MiB, 2.0 MiB/s, 0s left")
}
