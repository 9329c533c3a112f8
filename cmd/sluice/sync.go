package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cmd/internal/workspace"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// syncFlags are what every sync command takes.
type syncFlags struct {
	endpoint, region, profile string
	layout, onConflict        string
	ignore                    []string
	verify, asJSON, quiet     bool
	outsideLinks, single      bool
	keep                      int
	keepFor, grace            time.Duration
}

// newSyncCommand is "sluice sync" with all that is under it. It needs no server.
func newSyncCommand() *cobra.Command {
	f := &syncFlags{}
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Keep a folder in S3, or in another folder, by checksum",
		Long: `Keep a folder in step with a place in an object store: s3://bucket/prefix or file:///path.

What is compared is content, never times alone. A path that changed on both sides since the
last sync is a conflict, and nothing is changed until you say which side to keep. Credentials
and profiles are those of the AWS SDK: AWS_ACCESS_KEY_ID, AWS_PROFILE, ~/.aws and so on.`,
		Example: "  sluice sync push ./work s3://bucket/work\n  sluice sync pull ./copy s3://bucket/work",
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.endpoint, "endpoint", "", "URL of an S3 server other than AWS")
	flags.StringVar(&f.region, "region", "", "region of the bucket (default: the environment's, else us-east-1)")
	flags.StringVar(&f.profile, "profile", "", "profile of the AWS configuration files")
	flags.StringVar(&f.layout, "layout", "", "packed, or plain for other tools to read; counts for the first push (default packed)")
	flags.StringVar(&f.onConflict, "on-conflict", "fail", "fail, local, remote or both")
	flags.StringArrayVar(&f.ignore, "ignore", nil, "leave out what matches this pattern, beside those of .sandboxignore")
	flags.BoolVar(&f.verify, "verify", false, "read every local file again, however unchanged it looks")
	flags.BoolVar(&f.outsideLinks, "outside-links", false, "keep symlinks that lead out of the folder")
	flags.BoolVar(&f.single, "single-writer", false, "nobody else writes there: allow stores without conditional writes")
	flags.BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "no progress")
	cmd.AddCommand(newPushCommand(f), newPullCommand(f), newStatusCommand(f), newVersionsCommand(f), newRestoreCommand(f))
	return cmd
}

func newPushCommand(f *syncFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "push DIR URL",
		Short:   "Store what the folder has and the store has not",
		Example: "  sluice sync push ./work s3://bucket/work --endpoint http://127.0.0.1:7070",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args, func(ctx context.Context, s *syncer.Syncer) (*syncer.Report, error) { return s.Push(ctx) })
		},
	}
	addRetention(cmd, f)
	return cmd
}

func newPullCommand(f *syncFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "pull DIR URL",
		Short:   "Bring into the folder what the store has and the folder has not",
		Example: "  sluice sync pull ./copy s3://bucket/work",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return schemas.Errorf(schemas.CodeInvalidArgument, "sync: %w", err)
			}
			return f.run(cmd, args, func(ctx context.Context, s *syncer.Syncer) (*syncer.Report, error) { return s.Pull(ctx) })
		},
	}
}

func newRestoreCommand(f *syncFlags) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "restore DIR URL --at TIME|VERSION",
		Short: "Make an earlier version the newest, and pull it",
		Example: "  sluice sync restore ./work s3://bucket/work --at 2026-01-02T15:04:05Z\n" +
			"  sluice sync restore ./work s3://bucket/work --at 20260102T150405.123456Z-9f1c2b3a",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at == "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "sync: say which version, or which time: --at")
			}
			return f.run(cmd, args, func(ctx context.Context, s *syncer.Syncer) (*syncer.Report, error) {
				return s.Restore(ctx, at)
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "a version, or a time: then the newest version that is not later")
	return cmd
}

func addRetention(cmd *cobra.Command, f *syncFlags) {
	cmd.Flags().IntVar(&f.keep, "keep", 0, "versions to keep, the current one included (default all)")
	cmd.Flags().DurationVar(&f.keepFor, "keep-for", 0, "how long to keep a version, such as 720h (default for ever)")
	cmd.Flags().DurationVar(&f.grace, "grace", 24*time.Hour, "how long anything outlives its replacement, whatever else is said")
}

// open makes the syncer for a command's arguments. The caller calls done when it is through.
func (f *syncFlags) open(ctx context.Context, dir, place string, progress func(syncer.Progress)) (s *syncer.Syncer, done func() error, err error) {
	at, err := new(workspace.Places).Open(ctx, place, workspace.Options{Endpoint: f.endpoint, Region: f.region, Profile: f.profile})
	if err != nil {
		return nil, nil, err
	}
	cfg := syncer.Config{
		Root: dir, Store: objectstore.Retry(at.Store, objectstore.RetryPolicy{}), Remote: at.Name,
		Layout: syncer.Layout(f.layout), OnConflict: syncer.OnConflict(f.onConflict), Verify: f.verify, Ignore: f.ignore,
		OutsideLinks: f.outsideLinks, SingleWriter: f.single, Progress: progress,
		Retention: syncer.Retention{Keep: f.keep, Age: f.keepFor, Grace: f.grace},
	}
	if seconds, err := strconv.Atoi(os.Getenv("SANDBOX_SYNC_STALE_THRESHOLD")); err == nil && seconds > 0 {
		cfg.StaleAfter = time.Duration(seconds) * time.Second
	}
	if s, err = syncer.New(cfg); err != nil {
		return nil, nil, errors.Join(err, at.Close())
	}
	return s, at.Close, nil
}

// run does one operation and prints its report.
func (f *syncFlags) run(cmd *cobra.Command, args []string, op func(context.Context, *syncer.Syncer) (*syncer.Report, error)) (err error) {
	display := newSyncDisplay(cmd.ErrOrStderr(), f.quiet || f.asJSON)
	s, done, err := f.open(cmd.Context(), args[0], args[1], display.show)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	ctx, stop := untilInterrupted(cmd.Context())
	defer stop()
	report, err := op(ctx, s)
	display.finish()
	if err != nil && ctx.Err() != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "sluice: interrupted; the folder and the store are whole: run it again to go on")
		err = exitCode(schemas.ExitSignalBase + int(unix.SIGINT))
	}
	if f.asJSON {
		out := struct {
			*syncer.Report
			Error *schemas.Error `json:"error,omitempty"`
		}{report, schemas.AsError(err)}
		return errors.Join(printJSON(cmd.OutOrStdout(), out), err)
	}
	printReport(cmd.OutOrStdout(), report, err)
	return err
}

// untilInterrupted ends the context with the first signal that asks for an end, so that what has been begun is tidied
// up. The second one ends the program.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func printReport(w io.Writer, r *syncer.Report, failed error) {
	for _, c := range r.Conflicts {
		kept := "not settled"
		if c.Kept != "" {
			kept = "kept " + c.Kept
		}
		fmt.Fprintf(w, "conflict  %s (here %s, there %s): %s\n", strconv.Quote(c.Path), c.Local, c.Remote, kept)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "skipped   %s: %s\n", strconv.Quote(s.Path), s.Reason)
	}
	for _, p := range r.Unsteady {
		fmt.Fprintf(w, "unsteady  %s: it went on changing; stored as it was when last read\n", strconv.Quote(p))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note     ", n)
	}
	took := time.Duration(r.DurationMS) * time.Millisecond
	if failed != nil {
		return // the error says the rest
	}
	if !r.Changed {
		fmt.Fprintf(w, "in sync: %d files, %s\n", r.Files, took)
		return
	}
	fmt.Fprintf(w, "version %s: %d files, %d uploaded, %d downloaded, %d deleted, %s sent, %s read, %s\n",
		r.Version, r.Files, r.Uploaded, r.Downloaded, r.Deleted, bytesText(r.BytesSent), bytesText(r.BytesRead), took)
}

func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
