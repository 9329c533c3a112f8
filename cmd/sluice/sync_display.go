package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/sluice-dev/sluice/syncer"
)

// syncDisplay shows progress: a bar on a terminal, and elsewhere a line now and then.
type syncDisplay struct {
	out   io.Writer
	quiet bool
	tty   bool

	mu    sync.Mutex
	phase string
	bar   *progressbar.ProgressBar
	last  time.Time
}

// lineEvery is how far apart the lines are that stand for a bar in a log.
const lineEvery = 5 * time.Second

func newSyncDisplay(out io.Writer, quiet bool) *syncDisplay {
	d := &syncDisplay{out: out, quiet: quiet, last: time.Now()}
	if f, ok := out.(*os.File); ok {
		d.tty = term.IsTerminal(int(f.Fd()))
	}
	return d
}

func (d *syncDisplay) show(p syncer.Progress) {
	if d.quiet {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.tty {
		if p.FilesTotal > 0 && time.Since(d.last) >= lineEvery {
			d.last = time.Now()
			fmt.Fprintf(d.out, "%s: %d of %d files, %s of %s\n", p.Phase, p.Files, p.FilesTotal, bytesText(p.Bytes), bytesText(p.BytesTotal))
		}
		return
	}
	if p.FilesTotal == 0 {
		return
	}
	if d.bar == nil || d.phase != p.Phase {
		d.phase = p.Phase
		d.bar = progressbar.NewOptions64(max(p.BytesTotal, 1),
			progressbar.OptionSetWriter(d.out), progressbar.OptionSetDescription(p.Phase), progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	}
	_ = d.bar.Set64(min(p.Bytes, max(p.BytesTotal, 1))) // a bar that cannot be drawn is no reason to stop
}

func (d *syncDisplay) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		_ = d.bar.Clear() // as above
	}
}
