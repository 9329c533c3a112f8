package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func sessionDiffCommand(g *globals) *cobra.Command {
	var thread, at, path string
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff",
		Short: "Compare a session's workspace, or one file of it, with a version",
		Long: `List what the workspace of a session has changed since its current version was stored: what a push
would store, at most 1,000 paths. With --path, print how that file differs, line by line, from the
current version or from another one. A session without a sandbox gets one first.`,
		Example: `  sluice session diff t1
  sluice session diff t1 --path src/main.go
  sluice session diff t1 --path src/main.go --at 2026-01-02T15:04:05Z`,
		RunE: g.onSession(&thread, func(ctx context.Context, s *client.Session) error {
			if path == "" && at != "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--path is missing: only a file is compared with a version that is not the current one")
			}
			var diff *schemas.WorkspaceDiff
			var err error
			if path == "" {
				diff, err = s.Changes(ctx)
			} else {
				diff, err = s.Diff(ctx, path, at)
			}
			if errors.Is(err, schemas.ErrNotFound) {
				err = schemas.Errorf(schemas.CodeNotFound, "%w: `sluice session versions %s` lists the versions, `sluice session push %[2]s` stores one", err, thread)
			}
			if err != nil {
				return err
			}
			return printResult(g.Main, asJSON, diff, func(m *Main, d *schemas.WorkspaceDiff) error { return m.printDiff(d, path) })
		}),
	}
	threadArg(c, &thread, sessionThread)
	atFlag(c, &at, "to compare with")
	c.Flags().StringVar(&path, "path", "", "`PATH` of the file to compare line by line; default: list the files that differ")
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// printDiff prints the changes of a workspace, or of its file at path.
func (m *Main) printDiff(d *schemas.WorkspaceDiff, path string) error {
	switch {
	case d.Omitted != "":
		fmt.Fprintf(m.Stdout, "%s differs, and is %s\n", oneLine(path), strings.ReplaceAll(string(d.Omitted), "_", " "))
		return nil
	case path != "":
		return m.printUnified(d.Text)
	}
	t := m.list("nothing differs from the current version", "CHANGE", "TYPE", "SIZE", "PATH").leaveOut("TYPE")
	for _, c := range d.Changes {
		size := ""
		if c.Type == "file" && c.What != "deleted" {
			size = byteSize(c.Size)
		}
		t.row(c.What, c.Type, size, c.Path)
	}
	if err := t.print(); err != nil {
		return err
	}
	if more := d.Count - int64(len(d.Changes)); more > 0 {
		fmt.Fprintf(m.Stderr, "sluice: %s more\n", count(more, "path"))
	}
	return nil
}

// printUnified prints a text in the unified format, with colours where the terminal has them. A terminal gets printable text alone.
func (m *Main) printUnified(text string) error {
	is, colours := m.terminal(m.Stdout)
	if !is {
		_, err := fmt.Fprint(m.Stdout, text)
		return err
	}
	for line := range strings.Lines(text) {
		line = printable(strings.TrimRight(line, "\r\n"))
		if colour := map[byte]string{'+': "\x1b[32m", '-': "\x1b[31m", '@': "\x1b[36m"}[(line + " ")[0]]; colours && colour != "" {
			line = colour + line + "\x1b[0m"
		}
		if _, err := fmt.Fprintln(m.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}
