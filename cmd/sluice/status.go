package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func statusCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the server, its streams and its workers",
		Long: `Show the NATS server, how full its streams are, its workers and whether their leases are alive, and
how many sessions, sandboxes and processes there are. Workspaces whose push failed are listed as
owed: their worker keeps them, and pushes again until that succeeds.
It starts no server: without one it fails.`,
		Example: `  sluice status
  sluice status --json`,
		Args: noArgs,
		RunE: g.withStatus(func(_ context.Context, _ *client.Client, s *schemas.Status) error {
			return printResult(g.Main, asJSON, s, printStatus)
		}),
	}
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// statusTimeout bounds the wait for the server's answers.
const statusTimeout = 15 * time.Second

// withStatus makes a command that reads the status of the server that --nats names, or of the one that runs on the data folder, and
// calls f with it. It starts no server. Errors: f's, unavailable where there is none.
func (g *globals) withStatus(f func(ctx context.Context, c *client.Client, s *schemas.Status) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		ctx, stop := untilHangup(cmd.Context())
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		c, url, err := g.connectToRunning()
		if err != nil {
			return err
		}
		defer c.conn.Close()
		s, err := c.client.Status(ctx)
		if err != nil {
			return err
		}
		s.Server.URL = cmp.Or(url, s.Server.URL)
		return f(ctx, c.client, s)
	}
}

// connectToRunning connects to a server that runs already. url is its address where the data folder has it. Errors: unavailable where
// there is none.
func (g *globals) connectToRunning() (c *connection, url string, err error) {
	if err := g.checkCreds(); err != nil {
		return nil, "", err
	}
	o := g.server()
	if g.nats == "" {
		dir := &dataFolder{path: g.data}
		a, known := dir.readAddress()
		if !known || !a.HasServer() {
			return nil, "", schemas.Errorf(schemas.CodeUnavailable, "no server runs on data folder %s: start one with `sluice up`, or name one with --nats URL", g.data)
		}
		o, url = g.serverAt(dir, a), cmp.Or(a.URL, "unix://"+a.Socket)
	}
	c, err = g.connectTo(o)
	return c, url, err
}

// keptBytes is what LOG holds of a tenant that may have so much.
func keptBytes(kept, most int64) string {
	if step := most / schemas.TenantGrain; kept < step {
		return "less than " + byteSize(step)
	}
	return "about " + byteSize(kept)
}

func printStatus(m *Main, s *schemas.Status) error {
	t := m.table()
	t.row("server", fmt.Sprintf("%s, NATS %s, round trip %.1f ms", s.Server.URL, s.Server.Version, s.Server.RTTMS))
	t.row("cell", s.Cell+", tenant "+s.Tenant)
	t.row("sessions", fmt.Sprintf("%d, %d with a sandbox", s.Sessions, s.Sandboxes))
	t.row("processes", fmt.Sprintf("%d running", s.Processes))
	if s.Log != nil {
		t.row("output", fmt.Sprintf("%s kept, at most %s, and %s of a process", keptBytes(s.Log.TenantBytes, s.Log.MaxTenantBytes), byteSize(s.Log.MaxTenantBytes), byteSize(s.Log.MaxProcessBytes)))
	}
	for _, w := range s.Workers {
		if w.Alive && w.Disk != nil && w.Disk.Low() {
			t.row("disk", fmt.Sprintf("%s has %s free and keeps %s: it starts no process", w.ID, byteSize(w.Disk.FreeBytes), byteSize(w.Disk.MinFreeBytes)))
		}
	}
	if err := errors.Join(t.print(), printOwed(m, s.Owed)); err != nil {
		return err
	}
	fmt.Fprintln(m.Stdout)
	t = m.list("the cell has no streams", "STREAM", "MESSAGES", "SIZE", "LIMIT", "FULL", "KEPT FOR").leaveOut("KEPT FOR", "MESSAGES", "LIMIT")
	for _, stream := range s.Streams {
		limit, full, kept := "", "", ""
		if stream.MaxBytes > 0 {
			limit, full = byteSize(stream.MaxBytes), fmt.Sprintf("%.0f%%", 100*float64(stream.Bytes)/float64(stream.MaxBytes))
		}
		if stream.MaxAgeMS > 0 {
			kept = (time.Duration(stream.MaxAgeMS) * time.Millisecond).String()
		}
		t.row(stream.Name, fmt.Sprint(stream.Messages), byteSize(int64(stream.Bytes)), limit, full, kept)
	}
	if err := t.print(); err != nil {
		return err
	}
	fmt.Fprintln(m.Stdout)
	t = m.list("no worker is registered: start one with `sluice up` or `sluice worker`", "WORKER…", "LEASE", "INCARNATION", "PROVIDERS…", "TEMPLATES…").leaveOut("INCARNATION", "TEMPLATES", "PROVIDERS")
	for _, w := range s.Workers {
		lease := "expired"
		if w.Alive {
			lease = "alive"
		}
		t.row(w.ID, lease, w.Incarnation, strings.Join(w.Providers, ","), strings.Join(w.Templates, ","))
	}
	return t.print()
}

// buildInfo is what `sluice version --json` prints.
type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func versionCommand(m *Main) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Example: `  sluice version
  sluice version --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return printResult(m, asJSON, thisBuild(), printBuild)
		},
	}
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

func printBuild(m *Main, v buildInfo) error {
	_, err := fmt.Fprintf(m.Stdout, "sluice %s, commit %s, %s, %s/%s\n", v.Version, cmp.Or(v.Commit, "unknown"), v.Go, v.OS, v.Arch)
	return err
}

func thisBuild() buildInfo {
	v := buildInfo{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				v.Commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				v.Commit += "-dirty"
			}
		}
	}
	return v
}
