package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cmd/internal/workspace"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
)

// syncFlags are the flags of every sync command.
type syncFlags struct {
	endpoint, region, profile string
	layout, onConflict        string
	ignore                    []string
	verify, asJSON, quiet     bool
	outsideLinks, single      bool
	keep                      int
	keepFor, keepReplaced     time.Duration
}

// syncCommand is `sluice sync` and its subcommands. They need no server.
func (m *Main) syncCommand() *cobra.Command {
	f := &syncFlags{}
	c := &cobra.Command{
		Use:   "sync",
		Short: "Sync a folder with S3 or another folder, by checksum",
		Long: `Sync a folder with a location in an object store: s3://bucket/prefix or file:///path.

Files are compared by content, never by time alone. A path that changed on both sides since the last
sync is a conflict: nothing is changed until you choose a side. Credentials and profiles are those
of the AWS SDK: AWS_ACCESS_KEY_ID, AWS_PROFILE, ~/.aws and so on. No Sluice server is needed.`,
		Example: `  sluice sync push ./work s3://bucket/work
  sluice sync pull ./copy s3://bucket/work`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	flags := c.PersistentFlags()
	flags.StringVar(&f.endpoint, "endpoint", "", "`URL` of an S3 server other than AWS")
	flags.StringVar(&f.region, "region", "", "bucket `REGION`; default: the environment's, or us-east-1")
	flags.StringVar(&f.profile, "profile", "", "`PROFILE` of the AWS configuration files")
	flags.StringVar(&f.layout, "layout", "", "store `LAYOUT` of the first push: packed, or plain for other tools to read; default: packed")
	flags.StringVar(&f.onConflict, "on-conflict", "fail", "`SIDE` to keep in a conflict: fail, local, remote or both")
	flags.StringArrayVar(&f.ignore, "ignore", nil, "`PATTERN` of paths to leave out, besides those of .sandboxignore; may be repeated")
	flags.BoolVar(&f.verify, "verify", false, "read every local file, even if it looks unchanged")
	flags.BoolVar(&f.outsideLinks, "outside-links", false, "keep symlinks that lead out of the folder")
	flags.BoolVar(&f.single, "single-writer", false, "allow stores without conditional writes: this is the only writer")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	c.AddCommand(m.syncPushCommand(f), m.syncPullCommand(f), m.syncStatusCommand(f), m.syncVersionsCommand(f), m.syncRestoreCommand(f))
	return c
}

func (m *Main) syncPushCommand(f *syncFlags) *cobra.Command {
	c := &cobra.Command{
		Use:     "push DIR URL",
		Short:   "Store the changes of a folder",
		Example: `  sluice sync push ./work s3://bucket/work --endpoint http://127.0.0.1:7070`,
		Args:    exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.sync(cmd.Context(), f, args, func(ctx context.Context, s *syncer.Syncer) (*syncer.Report, error) { return s.Push(ctx) })
		},
	}
	retentionFlags(c, f)
	return c
}

func (m *Main) syncPullCommand(f *syncFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "pull DIR URL",
		Short:   "Bring the stored changes into a folder",
		Example: `  sluice sync pull ./copy s3://bucket/work`,
		Args:    exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return schemas.Errorf(schemas.CodeInvalidArgument, "sync: create the folder to pull into: %w", err)
			}
			return m.sync(cmd.Context(), f, args, func(ctx context.Context, s *syncer.Syncer) (*syncer.Report, error) { return s.Pull(ctx) })
		},
	}
}

func (m *Main) syncRestoreCommand(f *syncFlags) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   "restore DIR URL --at TIME|VERSION",
		Short: "Make an earlier version the newest, and pull it",
		Example: `  sluice sync restore ./work s3://bucket/work --at 2026-01-02T15:04:05Z
  sluice sync restore ./work s3://bucket/work --at 20260102T150405.123456Z-9f1c2b3a`,
		Args: exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at == "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "sync: --at is missing: name a version or a time; `sluice sync versions URL` lists the versions")
			}
			return m.sync(cmd.Context(), f, args, func(ctx context.Context, s *syncer.Syncer) (*syncer.Report, error) {
				return s.Restore(ctx, at)
			})
		},
	}
	c.Flags().StringVar(&at, "at", "", "`VERSION` or time to restore; a time means the newest version up to then")
	return c
}

func (m *Main) syncStatusCommand(f *syncFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "status DIR URL",
		Short:   "Show what a push and a pull would do",
		Example: `  sluice sync status ./work s3://bucket/work --json`,
		Args:    exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.withSyncer(cmd.Context(), f, args[0], args[1], func(ctx context.Context, s *syncer.Syncer, progress *syncProgress) error {
				st, err := s.Status(ctx)
				progress.finish()
				if err != nil {
					return m.interrupted(ctx, err)
				}
				if f.asJSON {
					return m.printJSON(st)
				}
				return m.printSyncStatus(st)
			})
		},
	}
}

func (m *Main) syncVersionsCommand(f *syncFlags) *cobra.Command {
	var prune bool
	c := &cobra.Command{
		Use:   "versions URL",
		Short: "List the versions that can be restored, or remove old ones",
		Example: `  sluice sync versions s3://bucket/work
  sluice sync versions s3://bucket/work --prune --keep 10 --keep-for 720h`,
		Args: exactArgs(1, "one URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.withSyncer(cmd.Context(), f, ".", args[0], func(ctx context.Context, s *syncer.Syncer, _ *syncProgress) error {
				var removed *syncer.Collected
				if prune {
					collected, err := s.Collect(ctx)
					if err != nil {
						return m.interrupted(ctx, err)
					}
					removed = &collected
				}
				versions, err := s.Versions(ctx)
				if err != nil {
					return m.interrupted(ctx, err)
				}
				if f.asJSON {
					return m.printJSON(struct {
						Versions []syncer.Version  `json:"versions"`
						Removed  *syncer.Collected `json:"removed,omitempty"`
					}{versions, removed})
				}
				return m.printVersions(versions, removed)
			})
		},
	}
	c.Flags().BoolVar(&prune, "prune", false, "first remove versions that --keep and --keep-for do not keep, and unused content")
	retentionFlags(c, f)
	return c
}

func retentionFlags(c *cobra.Command, f *syncFlags) {
	c.Flags().IntVar(&f.keep, "keep", 0, "number `N` of versions to keep, with the current one; default: all")
	c.Flags().DurationVar(&f.keepFor, "keep-for", 0, "time `DURATION` to keep a version, such as 720h; default: forever")
	c.Flags().DurationVar(&f.keepReplaced, "keep-replaced", 24*time.Hour, "shortest time `DURATION` that replaced content stays")
}

// withSyncer calls fn with a syncer for a folder and a location. Ctrl+C ends its context, and a second one ends the program.
func (m *Main) withSyncer(ctx context.Context, f *syncFlags, dir, url string, fn func(context.Context, *syncer.Syncer, *syncProgress) error) (err error) {
	ctx, stop := untilSignal(ctx)
	defer stop()
	location, err := new(workspace.Locations).Open(ctx, url, workspace.Options{Endpoint: f.endpoint, Region: f.region, Profile: f.profile})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, location.Close()) }()
	progress := newSyncProgress(m.Stderr, f.quiet || f.asJSON)
	s, err := syncer.New(syncer.Config{
		Root: dir, Store: objectstore.Retry(location.Store, objectstore.RetryPolicy{}), Remote: location.Name,
		Layout: state.Layout(f.layout), OnConflict: plan.OnConflict(f.onConflict), Verify: f.verify, Ignore: f.ignore,
		OutsideLinks: f.outsideLinks, SingleWriter: f.single, Progress: progress.show,
		Retention:  syncer.Retention{Keep: f.keep, Age: f.keepFor, Grace: f.keepReplaced},
		StaleAfter: time.Duration(m.positive("SANDBOX_SYNC_STALE_THRESHOLD")) * time.Second,
	})
	if err != nil {
		return err
	}
	return fn(ctx, s, progress)
}

// sync runs one operation and prints its report.
func (m *Main) sync(ctx context.Context, f *syncFlags, args []string, op func(context.Context, *syncer.Syncer) (*syncer.Report, error)) error {
	return m.withSyncer(ctx, f, args[0], args[1], func(ctx context.Context, s *syncer.Syncer, progress *syncProgress) error {
		report, err := op(ctx, s)
		progress.finish()
		if err != nil {
			err = m.interrupted(ctx, err)
		}
		if f.asJSON {
			out := struct {
				*syncer.Report
				Error *schemas.Error `json:"error,omitempty"`
			}{report, schemas.AsError(err)}
			return errors.Join(m.printJSON(out), err)
		}
		m.printReport(report, err)
		return err
	})
}

// interrupted is err, or exit code 130 where the user interrupted the operation.
func (m *Main) interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	m.notice("interrupted: the folder and the store are consistent; run the command again to continue")
	return exitCode(schemas.ExitSignalBase + int(unix.SIGINT))
}
