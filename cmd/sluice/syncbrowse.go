package main

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

func atFlag(c *cobra.Command, at *string, what string) {
	c.Flags().StringVar(at, "at", "", "`VERSION` or time "+what+"; a time means the newest version up to then")
}

// browse runs a command that only reads the store.
func (f *syncFlags) browse(c *cobra.Command, url string, read func(context.Context, *syncer.Syncer) error) error {
	f.reads = true
	return f.withSyncer(c.Context(), ".", url, func(ctx context.Context, s *syncer.Syncer, _ *syncProgress) error {
		err := read(ctx, s)
		switch {
		case errors.Is(err, schemas.ErrNotFound):
			return schemas.Errorf(schemas.CodeNotFound, "%w: `sluice sync versions %s` lists what is stored", err, url)
		case err != nil:
			return f.interrupted(ctx, err)
		}
		return nil
	})
}

func syncListCommand(f *syncFlags) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   "ls URL [PATH]",
		Short: "List what is stored, now or in an earlier version",
		Example: `  sluice sync ls s3://bucket/work src
  sluice sync ls s3://bucket/work --at 2026-01-02T15:04:05Z --json`,
		Args: oneOrTwoArgs("URL and, if you like, PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.browse(cmd, args[0], func(ctx context.Context, s *syncer.Syncer) error {
				entries, err := s.List(ctx, at, optional(args, 1))
				if err != nil {
					return err
				}
				return printResult(f.Main, f.asJSON, entries, printEntries)
			})
		},
	}
	atFlag(c, &at, "to list")
	return c
}

func printEntries(m *Main, entries []syncer.Entry) error {
	t := m.list("the version has no files", "MODE", "SIZE", "MODIFIED", "PATH…").leaveOut("MODE", "MODIFIED")
	for i := range entries {
		e := &entries[i]
		mode, size, path := fs.FileMode(e.Mode), "", strconv.Quote(e.Path)
		modified := ""
		switch e.Kind {
		case "folder":
			mode |= fs.ModeDir
		case "symlink":
			mode |= fs.ModeSymlink
			path += " -> " + strconv.Quote(e.Target)
		default:
			size, modified = byteSize(e.Size), e.Modified.Local().Format(time.RFC3339)
		}
		t.row(mode.String(), size, modified, path)
	}
	return t.print()
}

func syncCatCommand(f *syncFlags) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   "cat URL PATH",
		Short: "Print a stored file, as it is now or was in an earlier version",
		Example: `  sluice sync cat s3://bucket/work src/main.go
  sluice sync cat s3://bucket/work src/main.go --at 2026-01-02T15:04:05Z`,
		Args: exactArgs(2, "URL and PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.asJSON {
				return schemas.Errorf(schemas.CodeInvalidArgument, "sync: cat prints a file as it is: omit --json")
			}
			return f.browse(cmd, args[0], func(ctx context.Context, s *syncer.Syncer) error {
				return s.Copy(ctx, at, args[1], f.Stdout)
			})
		},
	}
	atFlag(c, &at, "to print from")
	return c
}

func syncDiffCommand(f *syncFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "diff URL FROM [TO]",
		Short: "List what changed between two versions",
		Long: `List what changed from one version to another, by default the current one. FROM and TO are versions
or times. To compare a folder with the store, use "sluice sync status".`,
		Example: `  sluice sync diff s3://bucket/work 2026-01-02T15:04:05Z
  sluice sync diff s3://bucket/work 20260102T150405.123456Z-9f1c2b3a 2026-01-03T08:00:00Z`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}
			return exactArgs(2, "URL, FROM and, if you like, TO")(c, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.browse(cmd, args[0], func(ctx context.Context, s *syncer.Syncer) error {
				changes, err := s.Diff(ctx, args[1], optional(args, 2))
				if err != nil {
					return err
				}
				return printResult(f.Main, f.asJSON, changes, printChanges)
			})
		},
	}
}

func printChanges(m *Main, changes []syncer.Change) error {
	t := m.list("nothing differs", "CHANGE", "KIND", "SIZE", "PATH…").leaveOut("KIND", "SIZE")
	for _, c := range changes {
		t.row(c.What, c.Kind, byteSize(c.Size), strconv.Quote(c.Path))
	}
	return t.print()
}

func optional(args []string, i int) string {
	if len(args) > i {
		return args[i]
	}
	return ""
}

func oneOrTwoArgs(usage string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 2 {
			return nil
		}
		return exactArgs(1, usage)(c, args)
	}
}
