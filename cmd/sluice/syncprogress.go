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
	begun time.Time // the phase
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
	began := p.phase != now.Phase
	if began {
		p.phase, p.begun = now.Phase, time.Now()
	}
	if !p.tty {
		if time.Since(p.last) >= progressEvery {
			p.last = time.Now()
			fmt.Fprintln(p.out, "sluice: "+progressLine(now, time.Since(p.begun)))
		}
		return
	}
	if p.bar == nil || began {
		p.bar = progressbar.NewOptions64(max(now.BytesTotal, 1),
			progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(now.Phase), progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	}
	_ = p.bar.Set64(min(now.Bytes, max(now.BytesTotal, 1))) // a bar that cannot be drawn does not fail the sync
}

// progressLine says how far a phase is, how fast it was so far, and how long the rest takes at that rate.
func progressLine(now syncer.Progress, took time.Duration) string {
	line := fmt.Sprintf("%s: %d of %s, %s of %s", now.Phase, now.Files, count(now.FilesTotal, "file"), byteSize(now.Bytes), byteSize(now.BytesTotal))
	if now.Bytes <= 0 || took <= 0 {
		return line
	}
	rate := float64(now.Bytes) / took.Seconds()
	left := time.Duration(float64(max(0, now.BytesTotal-now.Bytes)) / rate * float64(time.Second))
	return line + fmt.Sprintf(", %s/s, %s left", byteSize(int64(rate)), left.Round(time.Second))
}

func (p *syncProgress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear() // as above
	}
}
