package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// onSession is the action of a command about the session of a thread that is there.
func (g *globals) onSession(thread *string, f func(ctx context.Context, s *client.Session) error) func(*cobra.Command, []string) error {
	return g.act(func(ctx context.Context, c *client.Client, _ []string) error {
		s, err := c.Session(ctx, *thread)
		if err != nil {
			return sessionError(err, *thread)
		}
		if err = f(ctx, s); errors.Is(err, schemas.ErrSessionExpired) {
			return sessionError(err, *thread)
		}
		return err
	})
}

// sessionError adds the way out to the error of a thread without a session.
func sessionError(err error, thread string) error {
	if !errors.Is(err, schemas.ErrNotFound) && !errors.Is(err, schemas.ErrSessionExpired) {
		return err
	}
	return schemas.Errorf(schemas.CodeOf(err), "%w: `sluice session list` shows the sessions, `sluice session create %s` creates one", err, thread)
}

func sessionPushCommand(g *globals) *cobra.Command {
	var thread string
	var asJSON bool
	c := &cobra.Command{
		Use:   "push",
		Short: "Store a session's workspace as a new version",
		Long: `Store the workspace of a session as a new version, where the sync location of its template says. The
session goes on, and what processes write meanwhile may be in the next version. A workspace that has
not changed makes no version.`,
		Example: `  sluice session push t1
  sluice session push t1 --json`,
		RunE: g.onSession(&thread, func(ctx context.Context, s *client.Session) error {
			r, err := s.Push(ctx)
			return g.printSync(asJSON, r, err, "stored")
		}),
	}
	threadArg(c, &thread, sessionThread)
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

func sessionVersionsCommand(g *globals) *cobra.Command {
	var thread string
	var asJSON bool
	c := &cobra.Command{
		Use:   "versions",
		Short: "List the stored versions of a session's workspace",
		Long: `List the stored versions of a session's workspace, the newest first, at most 1,000. A session
without a sandbox gets one first.`,
		Example: `  sluice session versions t1
  sluice session versions t1 --json | jq -r '.[0].id'`,
		RunE: g.onSession(&thread, func(ctx context.Context, s *client.Session) error {
			list, err := s.Versions(ctx)
			if err != nil {
				return err
			}
			return printResult(g.Main, asJSON, append([]schemas.WorkspaceVersion{}, list...), func(m *Main, list []schemas.WorkspaceVersion) error {
				t := m.versionList("no version of the workspace is stored: `sluice session push " + thread + "` stores one")
				for _, v := range list {
					t.version(v.ID, v.Time, v.Current)
				}
				return t.print()
			})
		}),
	}
	threadArg(c, &thread, sessionThread)
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func sessionRestoreCommand(g *globals) *cobra.Command {
	var thread, at, path string
	var asJSON bool
	c := &cobra.Command{
		Use:   "restore",
		Short: "Bring a session's workspace, or one path of it, back to a version",
		Long: `Bring the workspace of a session back to a version. What is there is stored first, so that nothing
is lost, and the version becomes the newest. With --path, bring only that file or folder back,
delete nothing, and leave the store as it is: the next push stores it.`,
		Example: `  sluice session restore t1 --at 20260102T150405.123456Z-9f1c2b3a
  sluice session restore t1 --at 2026-01-02T15:04:05Z --path src/main.go`,
		RunE: g.onSession(&thread, func(ctx context.Context, s *client.Session) error {
			if at == "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--at is missing: name a version or a time; `sluice session versions %s` lists the versions", thread)
			}
			r, err := s.Restore(ctx, at, path)
			if errors.Is(err, schemas.ErrNotFound) {
				err = schemas.Errorf(schemas.CodeNotFound, "%w: `sluice session versions %s` lists the versions", err, thread)
			}
			return g.printSync(asJSON, r, err, "restored")
		}),
	}
	threadArg(c, &thread, sessionThread)
	atFlag(c, &at, "to restore")
	c.Flags().StringVar(&path, "path", "", "`PATH` to bring back, a file or a folder; default: everything")
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// printSync prints what a push or a restore did, also beside the error that it ended with.
func (g *globals) printSync(asJSON bool, r *schemas.SyncReport, err error, done string) error {
	switch {
	case r == nil:
		return err
	case asJSON:
		return errors.Join(g.printJSON(struct {
			*schemas.SyncReport
			Error *schemas.Error `json:"error,omitempty"`
		}{r, schemas.AsError(err)}), err)
	}
	for _, path := range r.Conflicts {
		fmt.Fprintln(g.Stdout, "conflict ", oneLine(path))
	}
	if err != nil && r.Version == "" && r.Files == 0 && r.Deleted == 0 {
		return err // nothing was done
	}
	version := "no new version"
	if r.Version != "" {
		version = "version " + oneLine(r.Version)
	}
	fmt.Fprintf(g.Stdout, "%s: %s, %s, %d deleted, %s, %s\n", version, count(r.Files, "file")+" "+done, byteSize(r.Bytes), r.Deleted,
		oneLine(r.Location), time.Duration(r.DurationMS*float64(time.Millisecond)).Round(time.Millisecond))
	return err
}

// versionTable lists versions of a workspace.
type versionTable struct{ *table }

func (m *Main) versionList(empty string) versionTable {
	return versionTable{m.list(empty, "VERSION", "TIME", "STATE").leaveOut("TIME")}
}

func (t versionTable) version(id string, at time.Time, current bool) {
	state := ""
	if current {
		state = "current"
	}
	t.row(id, at.Local().Format(time.RFC3339), state)
}
