package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

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

func newSyncProgress(out io.Writer, quiet bool) *syncProgress {
	p := &syncProgress{out: out, quiet: quiet, last: time.Now()}
	if f, ok := out.(*os.File); ok {
		p.tty = term.IsTerminal(int(f.Fd()))
	}
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
			fmt.Fprintf(p.out, "%s: %d of %d files, %s of %s\n", now.Phase, now.Files, now.FilesTotal, byteSize(now.Bytes), byteSize(now.BytesTotal))
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

func (m *Main) printReport(r *syncer.Report, failed error) {
	for _, c := range r.Conflicts {
		kept := "not settled"
		if c.Kept != "" {
			kept = "kept " + c.Kept
		}
		fmt.Fprintf(m.Stdout, "conflict  %s (local %s, remote %s): %s\n", strconv.Quote(c.Path), c.Local, c.Remote, kept)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(m.Stdout, "skipped   %s: %s\n", strconv.Quote(s.Path), s.Reason)
	}
	for _, p := range r.Unsteady {
		fmt.Fprintf(m.Stdout, "unsteady  %s: it changed while it was read; stored as last read\n", strconv.Quote(p))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(m.Stdout, "note     ", n)
	}
	took := time.Duration(r.DurationMS) * time.Millisecond
	switch {
	case failed != nil: // the error is printed after this
	case !r.Changed:
		fmt.Fprintf(m.Stdout, "in sync: %d files, %s\n", r.Files, took)
	default:
		fmt.Fprintf(m.Stdout, "version %s: %d files, %d uploaded, %d downloaded, %d deleted, %s sent, %s read, %s\n",
			r.Version, r.Files, r.Uploaded, r.Downloaded, r.Deleted, byteSize(r.BytesSent), byteSize(r.BytesRead), took)
	}
}

func (m *Main) printSyncStatus(st *syncer.Status) error {
	t := m.table()
	for _, list := range []struct {
		name    string
		changes []syncer.Change
	}{{"push", st.Push}, {"pull", st.Pull}} {
		for _, c := range list.changes {
			t.row(list.name, c.What, c.Kind, strconv.Quote(c.Path))
		}
	}
	for _, c := range st.Conflicts {
		t.row("conflict", "local "+c.Local, "remote "+c.Remote, strconv.Quote(c.Path))
	}
	for _, s := range st.Skipped {
		t.row("skipped", "", s.Reason, strconv.Quote(s.Path))
	}
	if err := t.print(); err != nil {
		return err
	}
	for _, n := range st.Notes {
		fmt.Fprintln(m.Stdout, "note     ", n)
	}
	synced := "never synced"
	if !st.SyncedAt.IsZero() {
		synced = "last synced " + st.SyncedAt.Local().Format(time.RFC3339)
	}
	if st.Stale {
		synced += ", stale"
	}
	fmt.Fprintf(m.Stdout, "%d to push, %d to pull, %d conflicts; %s\n", len(st.Push), len(st.Pull), len(st.Conflicts), synced)
	return nil
}

func (m *Main) printVersions(versions []syncer.Version, removed *syncer.Collected) error {
	t := m.table("VERSION", "TIME", "STATE")
	for _, v := range versions {
		state := ""
		if v.Current {
			state = "current"
		}
		t.row(v.ID, v.Time.Local().Format(time.RFC3339), state)
	}
	if err := t.print(); err != nil {
		return err
	}
	if removed != nil {
		fmt.Fprintf(m.Stdout, "removed %d versions and %d objects, %s\n", removed.Versions, removed.Objects, byteSize(removed.Bytes))
	}
	return nil
}
