package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func workspaceCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "workspace",
		Short: "List and remove the workspaces on workers",
		Long: `List and remove the workspaces on the disks of workers. A worker keeps the workspace of a session
that has ended for a time, 24h unless --keep-workspaces of the worker says otherwise, and then
removes it. It never removes one whose push is owed. Pushed versions stay.`,
		Example: `  sluice workspace list
  sluice workspace rm t1`,
	}, workspaceListCommand(g), workspaceRemoveCommand(g))
}

func workspaceListCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List workspaces",
		Example: `  sluice workspace list
  sluice workspace list --json`,
		Args: noArgs,
		RunE: g.act(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Workspaces(ctx)
			if err != nil {
				return err
			}
			return printResult(g.Main, asJSON, list, printWorkspaces)
		}),
	}
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func printWorkspaces(m *Main, list []schemas.Workspace) error {
	t := m.list("no worker has a workspace: the first command of a thread makes one", "THREAD…", "WORKER…", "STATE", "TEMPLATE…", "FILES", "SIZE", "ENDED", "KEPT UNTIL").leaveOut("ENDED", "TEMPLATE", "FILES", "WORKER", "KEPT UNTIL")
	for _, w := range list {
		state, files, size, until := "kept", fmt.Sprint(w.Files), byteSize(w.Bytes), localTime(w.Until)
		if w.Owed {
			state, until = "owed", "pushed"
		}
		if w.InUse {
			state, files, size = "in use", "", ""
		}
		t.row(w.Thread, w.Worker, state, w.Template, files, size, localTime(w.Ended), until)
	}
	return t.print()
}

func workspaceRemoveCommand(g *globals) *cobra.Command {
	var worker string
	var unpushed bool
	c := &cobra.Command{
		Use:   "rm THREAD",
		Short: "Remove the workspace of a thread without a session",
		Example: `  sluice workspace rm t1
  sluice workspace rm t1 --worker w2 --unpushed`,
		Args: exactArgs(1, "THREAD"),
		RunE: g.act(func(ctx context.Context, c *client.Client, args []string) error {
			return c.RemoveWorkspace(ctx, args[0], worker, unpushed)
		}),
	}
	c.Flags().StringVar(&worker, "worker", "", "only from this `WORKER`; default: from every worker that has it")
	c.Flags().BoolVar(&unpushed, "unpushed", false, "also remove it when its push is owed, and give that push up")
	return c
}
