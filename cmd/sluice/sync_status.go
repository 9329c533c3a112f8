package main

import (
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/syncer"
)

func newStatusCommand(f *syncFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "status DIR URL",
		Short:   "Say what a push and a pull would do",
		Example: "  sluice sync status ./work s3://bucket/work --json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			display := newSyncDisplay(cmd.ErrOrStderr(), f.quiet || f.asJSON)
			s, done, err := f.open(cmd.Context(), args[0], args[1], display.show)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
			st, err := s.Status(cmd.Context())
			display.finish()
			if err != nil {
				return err
			}
			if f.asJSON {
				return printJSON(cmd.OutOrStdout(), st)
			}
			return printStatus(cmd, st)
		},
	}
}

func printStatus(cmd *cobra.Command, st *syncer.Status) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	for _, list := range []struct {
		what    string
		changes []syncer.Change
	}{{"push", st.Push}, {"pull", st.Pull}} {
		for _, c := range list.changes {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", list.what, c.What, c.Kind, strconv.Quote(c.Path))
		}
	}
	for _, c := range st.Conflicts {
		fmt.Fprintf(w, "conflict\there %s\tthere %s\t%s\n", c.Local, c.Remote, strconv.Quote(c.Path))
	}
	for _, s := range st.Skipped {
		fmt.Fprintf(w, "skipped\t\t%s\t%s\n", s.Reason, strconv.Quote(s.Path))
	}
	for _, n := range st.Notes {
		fmt.Fprintf(w, "note\t%s\n", n)
	}
	synced := "never synced"
	if !st.SyncedAt.IsZero() {
		synced = "last synced " + st.SyncedAt.Local().Format(time.RFC3339)
	}
	if st.Stale {
		synced += ", stale"
	}
	fmt.Fprintf(w, "%d to push, %d to pull, %d conflicts; %s\n", len(st.Push), len(st.Pull), len(st.Conflicts), synced)
	return w.Flush()
}

func newVersionsCommand(f *syncFlags) *cobra.Command {
	var prune bool
	cmd := &cobra.Command{
		Use:   "versions URL",
		Short: "List the versions that can be restored, or remove old ones",
		Example: "  sluice sync versions s3://bucket/work\n" +
			"  sluice sync versions s3://bucket/work --prune --keep 10 --keep-for 720h",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s, done, err := f.open(cmd.Context(), ".", args[0], nil)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
			var removed *syncer.Collected
			if prune {
				c, err := s.Collect(cmd.Context())
				if err != nil {
					return err
				}
				removed = &c
			}
			versions, err := s.Versions(cmd.Context())
			if err != nil {
				return err
			}
			if f.asJSON {
				return printJSON(cmd.OutOrStdout(), struct {
					Versions []syncer.Version  `json:"versions"`
					Removed  *syncer.Collected `json:"removed,omitempty"`
				}{versions, removed})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			for _, v := range versions {
				mark := ""
				if v.Current {
					mark = "current"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", v.ID, v.Time.Local().Format(time.RFC3339), mark)
			}
			if removed != nil {
				fmt.Fprintf(w, "removed %d versions and %d objects, %s\n", removed.Versions, removed.Objects, bytesText(removed.Bytes))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "first remove what --keep and --keep-for do not keep, and content nothing mentions")
	addRetention(cmd, f)
	return cmd
}
