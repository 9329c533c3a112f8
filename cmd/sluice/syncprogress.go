package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/sluice-dev/sluice/syncer"
)

// syncProgress shows progress: a bar on a terminal, and elsewhere a line now and then.
type syncProgress struct {
	out   io.Writer
	quiet bool
	tty   bool

	mu    sync.Mutex
	phase string
	bar   *progressbar.ProgressBar
	last  time.Time
}

// progressEvery is the time between two lines of progress where there is no terminal.
const progressEvery = 5 * time.Second

func newSyncProgress(m *Main, quiet bool) *syncProgress {
	p := &syncProgress{out: m.Stderr, quiet: quiet, last: time.Now()}
	_, p.tty = m.terminal(m.Stderr)
	return p
}

func (p *syncProgress) show(now syncer.Progress) {
	if p.quiet || now.FilesTotal == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.tty {
		if time.Since(p.last) >= progressEvery {
			p.last = time.Now()
			fmt.Fprintf(p.out, "sluice: %s: %d of %s, %s of %s\n", now.Phase, now.Files, count(now.FilesTotal, "file"), byteSize(now.Bytes), byteSize(now.BytesTotal))
		}
		return
	}
	if p.bar == nil || p.phase != now.Phase {
		p.phase = now.Phase
		p.bar = progressbar.NewOptions64(max(now.BytesTotal, 1),
			progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(now.Phase), progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	}
	_ = p.bar.Set64(min(now.Bytes, max(now.BytesTotal, 1))) // a bar that cannot be drawn does not fail the sync
}

func (p *syncProgress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear() // as above
	}
}
