package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

func syncCheckCommand(f *syncFlags) *cobra.Command {
	var repair bool
	c := &cobra.Command{
		Use:   "check DIR URL",
		Short: "Read all that is stored, and report or repair damage",
		Long: `Read everything that is stored of a workspace, its versions too, and list what is missing,
damaged or replaced, by path. With --repair, send again what the folder has of it. An object of the
plain layout that another tool may have replaced is kept unless you pass --on-conflict local.`,
		Example: `  sluice sync check ./work s3://bucket/work
  sluice sync check ./work s3://bucket/work --repair`,
		Args: exactArgs(2, "DIR and URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withSyncer(cmd.Context(), args[0], args[1], func(ctx context.Context, s *syncer.Syncer, progress *syncProgress) error {
				r, err := s.Check(ctx, repair)
				progress.finish()
				if err != nil {
					err = f.interrupted(ctx, err)
				}
				if !f.asJSON {
					printCheck(f.Main, r)
					return err
				}
				return errors.Join(f.printJSON(struct {
					*syncer.CheckReport
					Error *schemas.Error `json:"error,omitempty"`
				}{r, schemas.AsError(err)}), err)
			})
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "send again what the folder has of it")
	return c
}

func printCheck(m *Main, r *syncer.CheckReport) {
	for _, d := range r.Damage {
		what, version := d.Problem, ""
		if d.Repaired {
			what += ", repaired"
		}
		if d.Version != "" {
			version = " in version " + d.Version
		}
		fmt.Fprintf(m.Stdout, "%s: %s%s\n", strconv.Quote(d.Path), what, oneLine(version))
	}
	for _, key := range r.Others {
		fmt.Fprintf(m.Stdout, "%s: of another tool\n", strconv.Quote(key))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(m.Stdout, "note     ", oneLine(n))
	}
	fmt.Fprintf(m.Stdout, "version %s: %d files, %s read, %d problems, %d repaired, %s\n", oneLine(r.Version), r.Files, byteSize(r.BytesRead),
		len(r.Damage), r.Repaired, time.Duration(r.DurationMS)*time.Millisecond)
}
