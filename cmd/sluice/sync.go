package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/workspace"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

const syncName = "sync"

type syncFlags struct {
	*Main
	endpoint, region, profile string
	keyFile                   string
	layout, onConflict        string
	ignore, include           []string
	transfers                 int
	limitUp, limitDown        int64
	verify, asJSON, quiet     bool
	outsideLinks, single      bool
	dryRun, mayCreate         bool
	reads                     bool // the store is not changed
	maxDelete                 string
	keep                      int
	keepFor, keepReplaced     time.Duration
}

// syncCommand is `sluice sync` and its subcommands. They need no server.
func syncCommand(m *Main) *cobra.Command {
	f := &syncFlags{Main: m}
	c := &cobra.Command{
		Use:   syncName,
		Short: "Sync a folder with S3 or another folder, by checksum",
		Long: `Sync a folder with a location in an object store: s3://bucket/prefix or file:///path.

Files are compared by content, never by time alone. A path that changed on both sides since the last
sync is a conflict: nothing is changed until you choose a side. Credentials and profiles are those
of the AWS SDK: AWS_ACCESS_KEY_ID, AWS_PROFILE, ~/.aws and so on. No Sluice server is needed. With a
key, content and names are encrypted before they leave the machine.

` + syncExitHelp,
		Example: `  sluice sync push ./work s3://bucket/work
  sluice sync pull ./copy s3://bucket/work
  sluice sync keygen work.key && sluice sync push ./work s3://bucket/secret --key-file work.key`,
	}
	flags := c.PersistentFlags()
	flags.StringVar(&f.endpoint, "endpoint", "", "`URL` of an S3 server other than AWS")
	flags.StringVar(&f.region, "region", "", "bucket `REGION`; default: the environment's, or us-east-1")
	flags.StringVar(&f.profile, "profile", "", "`PROFILE` of the AWS configuration files")
	flags.StringVar(&f.keyFile, "key-file", "", "`FILE` with the key of an encrypted workspace; default: the key in SLUICE_SYNC_KEY, else none")
	flags.StringVar(&f.layout, "layout", "", "store `LAYOUT` of the first push: packed, or plain for other tools to read; default: packed")
	flags.StringVar(&f.onConflict, "on-conflict", "fail", "`SIDE` to keep in a conflict: fail, local, remote or both")
	flags.StringArrayVar(&f.ignore, "ignore", nil, "`PATTERN` of paths to leave out, besides those of .sandboxignore; may be repeated")
	flags.StringArrayVar(&f.include, "include", nil, "`PATTERN` of paths to sync; all others are left alone; may be repeated")
	flags.IntVar(&f.transfers, "transfers", 0, "most requests `N` at once; default: 8, or 64 for single files")
	flags.Var((*size)(&f.limitUp), "limit-upload", "most `SIZE` to send in a second, such as 2MiB; default: any")
	flags.Var((*size)(&f.limitDown), "limit-download", "most `SIZE` to receive in a second; default: any")
	flags.BoolVar(&f.verify, "verify", false, "read every local file, even if it looks unchanged; a push also checks what is stored")
	flags.BoolVar(&f.outsideLinks, "outside-links", false, "keep symlinks that lead out of the folder")
	flags.BoolVar(&f.single, "single-writer", false, "allow stores without conditional writes: this is the only writer")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	return withCommands(c, syncPushCommand(f), syncPullCommand(f), syncStatusCommand(f), syncVersionsCommand(f), syncRestoreCommand(f),
		syncCheckCommand(f), syncListCommand(f), syncDiffCommand(f), syncCatCommand(f), syncKeygenCommand(f))
}

func syncPushCommand(f *syncFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "push DIR URL",
		Short: "Store the changes of a folder",
		Example: `  sluice sync push ./work s3://bucket/work --dry-run
  sluice sync push ./work s3://bucket/work --endpoint http://127.0.0.1:7070`,
		Args: exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.dryRun {
				return f.preview(cmd.Context(), args, (*syncer.Syncer).PreviewPush)
			}
			return f.run(cmd.Context(), args, (*syncer.Syncer).Push)
		},
	}
	dryRunFlag(c, f)
	maxDeleteFlag(c, f)
	retentionFlags(c, f)
	return c
}

func syncPullCommand(f *syncFlags) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   "pull DIR URL",
		Short: "Bring the stored changes into a folder",
		Long: `Bring the stored changes into a folder. With --at, bring the folder to an earlier version, and
leave the store as it is: the next pull brings the newest again.`,
		Example: `  sluice sync pull ./copy s3://bucket/work
  sluice sync pull ./copy s3://bucket/work --at 2026-01-02T15:04:05Z --dry-run`,
		Args: exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.dryRun {
				f.mayCreate = true
				return f.preview(cmd.Context(), args, func(s *syncer.Syncer, ctx context.Context) (*syncer.Preview, error) {
					return s.PreviewPull(ctx, at)
				})
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return schemas.Errorf(schemas.CodeInvalidArgument, "sync: create the folder to pull into: %w", err)
			}
			return f.run(cmd.Context(), args, func(s *syncer.Syncer, ctx context.Context) (*syncer.Report, error) {
				if at != "" {
					return s.PullAt(ctx, at)
				}
				return s.Pull(ctx)
			})
		},
	}
	dryRunFlag(c, f)
	maxDeleteFlag(c, f)
	atFlag(c, &at, "to pull")
	return c
}

func syncRestoreCommand(f *syncFlags) *cobra.Command {
	var at, path string
	c := &cobra.Command{
		Use:   "restore DIR URL --at TIME|VERSION",
		Short: "Make an earlier version the newest, and pull it; or bring back one path",
		Long: `Make an earlier version the newest, and pull it. With --path, bring only that file or folder from
the version into DIR, delete nothing, and leave the store as it is: the next push stores it.`,
		Example: `  sluice sync restore ./work s3://bucket/work --at 2026-01-02T15:04:05Z --path src/main.go
  sluice sync restore ./work s3://bucket/work --at 2026-01-02T15:04:05Z
  sluice sync restore ./work s3://bucket/work --at 20260102T150405.123456Z-9f1c2b3a`,
		Args: exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at == "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "sync: --at is missing: name a version or a time; `sluice sync versions URL` lists the versions")
			}
			return f.run(cmd.Context(), args, func(s *syncer.Syncer, ctx context.Context) (*syncer.Report, error) {
				if path != "" {
					return s.RestorePath(ctx, at, path)
				}
				return s.Restore(ctx, at)
			})
		},
	}
	atFlag(c, &at, "to restore")
	c.Flags().StringVar(&path, "path", "", "`PATH` to bring back, a file or a folder; default: everything")
	return c
}

func syncStatusCommand(f *syncFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "status DIR URL",
		Short:   "Show what a push and a pull would do",
		Example: `  sluice sync status ./work s3://bucket/work --json`,
		Args:    exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.reads = true
			return f.withSyncer(cmd.Context(), args[0], args[1], func(ctx context.Context, s *syncer.Syncer, progress *syncProgress) error {
				st, err := s.Status(ctx)
				progress.finish()
				if err != nil {
					return f.interrupted(ctx, err)
				}
				return printResult(f.Main, f.asJSON, st, printSyncStatus)
			})
		},
	}
}

func syncVersionsCommand(f *syncFlags) *cobra.Command {
	var prune bool
	c := &cobra.Command{
		Use:   "versions URL",
		Short: "List the versions that can be restored, or remove old ones",
		Example: `  sluice sync versions s3://bucket/work
  sluice sync versions s3://bucket/work --prune --keep 10 --keep-for 720h`,
		Args: exactArgs(1, "one URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withSyncer(cmd.Context(), ".", args[0], func(ctx context.Context, s *syncer.Syncer, _ *syncProgress) error {
				var removed *syncer.Collected
				if prune {
					collected, err := s.Collect(ctx)
					if err != nil {
						return f.interrupted(ctx, err)
					}
					removed = &collected
				}
				versions, err := s.Versions(ctx)
				if err != nil {
					return f.interrupted(ctx, err)
				}
				return printResult(f.Main, f.asJSON, versionList{append([]syncer.Version{}, versions...), removed}, printVersions)
			})
		},
	}
	c.Flags().BoolVar(&prune, "prune", false, "first remove versions that --keep and --keep-for do not keep, and unused content")
	retentionFlags(c, f)
	return c
}

// versionList is what `sluice sync versions --json` prints.
type versionList struct {
	Versions []syncer.Version  `json:"versions"`
	Removed  *syncer.Collected `json:"removed,omitempty"`
}

func retentionFlags(c *cobra.Command, f *syncFlags) {
	c.Flags().IntVar(&f.keep, "keep", 0, "number `N` of versions to keep, with the current one; default: all")
	c.Flags().DurationVar(&f.keepFor, "keep-for", 0, "time `DURATION` to keep a version, such as 720h; default: forever")
	c.Flags().DurationVar(&f.keepReplaced, "keep-replaced", 24*time.Hour, "shortest time `DURATION` that replaced content stays")
}

// delayCollection has the first garbage collection wait until a sync without changes would have ended, by the size of its index in bytes:
// nearly all that it allocates is needed to the end, and a collection also reads memory that is not used yet, which makes its first use slow.
func delayCollection(index int64) {
	const (
		heap    = 4 << 20 // of a first collection at 100 %, see GOGC in package runtime
		least   = 400
		longest = 512 << 20 // bytes of heap
	)
	percent := int(max(least, min(index*9/2, longest)*100/heap))
	if was := debug.SetGCPercent(percent); was != percent {
		runtime.AddCleanup(new([32]byte), func(percent int) { debug.SetGCPercent(percent) }, was)
	}
}

// withSyncer calls fn with a syncer for a folder and a location. Ctrl+C ends its context, and a second one ends the program.
func (f *syncFlags) withSyncer(ctx context.Context, dir, url string, fn func(context.Context, *syncer.Syncer, *syncProgress) error) (err error) {
	delayCollection(syncer.IndexSize(dir))
	ctx, stop := untilHangup(ctx)
	defer stop()
	mayDelete, err := deletionLimit(f.maxDelete)
	if err != nil {
		return err
	}
	open := new(workspace.Locations).Open
	if f.reads {
		open = new(workspace.Locations).OpenExisting
	}
	key, err := f.key()
	if err != nil {
		return err
	}
	stale, err := fromEnv(f.Main, "SANDBOX_SYNC_STALE_THRESHOLD", 0, unitsOf(int64(time.Second)))
	if err != nil {
		return err
	}
	location, err := open(ctx, url, workspace.Options{Endpoint: f.endpoint, Region: f.region, Profile: f.profile})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, location.Close()) }()
	progress := newSyncProgress(f.Main, f.quiet || f.asJSON)
	s, err := syncer.New(syncer.Config{
		Root: dir, Store: objectstore.Retry(objectstore.Limit(location.Store, f.limitUp, f.limitDown), objectstore.RetryPolicy{}), Remote: location.Name, StoreDir: location.Dir,
		Key: key, Layout: state.Layout(f.layout), OnConflict: plan.OnConflict(f.onConflict), Verify: f.verify, Ignore: f.ignore, Include: f.include,
		Uploads: f.transfers, Downloads: f.transfers,
		OutsideLinks: f.outsideLinks, SingleWriter: f.single, Progress: progress.show, MayDelete: mayDelete,
		Retention:  syncer.Retention{Keep: f.keep, Age: f.keepFor, Grace: f.keepReplaced},
		StaleAfter: time.Duration(stale),
	})
	if err != nil {
		return err
	}
	return fn(ctx, s, progress)
}

// run runs one operation and prints its report.
func (f *syncFlags) run(ctx context.Context, args []string, op func(*syncer.Syncer, context.Context) (*syncer.Report, error)) error {
	return f.withSyncer(ctx, args[0], args[1], func(ctx context.Context, s *syncer.Syncer, progress *syncProgress) error {
		report, err := op(s, ctx)
		progress.finish()
		if err != nil {
			err = f.interrupted(ctx, err)
		}
		if f.asJSON {
			out := struct {
				*syncer.Report
				Error *schemas.Error `json:"error,omitempty"`
			}{report, schemas.AsError(err)}
			return errors.Join(f.printJSON(out), err)
		}
		printReport(f.Main, report, err)
		return err
	})
}

// interrupted is err, or exit code 130 where the user interrupted the operation.
func (f *syncFlags) interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	f.notice("interrupted: the folder and the store are consistent; run the command again to continue")
	return exitCode(schemas.ExitSignalBase + int(unix.SIGINT))
}

func printReport(m *Main, r *syncer.Report, failed error) {
	printSyncFindings(m, r.Conflicts, r.Skipped, r.Notes)
	for _, p := range r.Unsteady {
		fmt.Fprintf(m.Stdout, "unsteady  %s: it changed while it was read; stored as last read\n", strconv.Quote(p))
	}
	took := time.Duration(r.DurationMS) * time.Millisecond
	switch {
	case failed != nil: // the error is printed after this
	case !r.Changed:
		fmt.Fprintf(m.Stdout, "in sync: %s, %s\n", count(r.Files, "file"), took)
	default:
		name := "synced"
		if r.Version != "" { // a state by another tool has none
			name = "version " + r.Version
		}
		fmt.Fprintf(m.Stdout, "%s: %s, %d uploaded, %d downloaded, %d deleted, %s sent, %s read, %s\n",
			name, count(r.Files, "file"), r.Uploaded, r.Downloaded, r.Deleted, byteSize(r.BytesSent), byteSize(r.BytesRead), took)
	}
}

func printSyncFindings(m *Main, conflicts []syncer.Conflict, skipped []worktree.Skipped, notes []string) {
	for _, c := range conflicts {
		kept := "not settled"
		if c.Kept != "" {
			kept = "kept " + c.Kept
		}
		fmt.Fprintf(m.Stdout, "conflict  %s (local %s, remote %s): %s\n", strconv.Quote(c.Path), c.Local, c.Remote, kept)
	}
	for _, s := range skipped {
		fmt.Fprintf(m.Stdout, "skipped   %s: %s\n", strconv.Quote(s.Path), oneLine(s.Reason))
	}
	for _, n := range notes {
		fmt.Fprintln(m.Stdout, "note     ", oneLine(n))
	}
}

func printSyncStatus(m *Main, st *syncer.Status) error {
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
		fmt.Fprintln(m.Stdout, "note     ", oneLine(n))
	}
	synced := "never synced"
	if !st.SyncedAt.IsZero() {
		synced = "last synced " + st.SyncedAt.Local().Format(time.RFC3339)
	}
	if st.Stale {
		synced += ", stale"
	}
	fmt.Fprintf(m.Stdout, "%d to push, %d to pull, %s; %s\n", len(st.Push), len(st.Pull), count(len(st.Conflicts), "conflict"), synced)
	return nil
}

func printVersions(m *Main, l versionList) error {
	t := m.versionList("no version is stored there: `sluice sync push` stores one")
	for _, v := range l.Versions {
		t.version(v.ID, v.Time, v.Current)
	}
	if err := t.print(); err != nil {
		return err
	}
	if l.Removed != nil {
		fmt.Fprintf(m.Stdout, "removed %s and %s, %s\n", count(l.Removed.Versions, "version"), count(l.Removed.Objects, "object"), byteSize(l.Removed.Bytes))
	}
	return nil
}
