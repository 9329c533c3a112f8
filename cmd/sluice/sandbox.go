package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func (m *Main) sandboxCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:     "sandbox",
		Short:   "List sandboxes",
		Example: `  sluice sandbox list`,
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	c.AddCommand(m.sandboxListCommand(g))
	return c
}

// sandboxLine is a sandbox as --json prints it: a part of its session.
type sandboxLine struct {
	Thread   string               `json:"thread"`
	Session  string               `json:"session"`
	Sandbox  string               `json:"sandbox"`
	Provider string               `json:"provider"`
	Image    string               `json:"image,omitempty"`
	State    schemas.SandboxState `json:"state"`
	Worker   string               `json:"worker"`
	Created  time.Time            `json:"created"`
}

func (m *Main) sandboxListCommand(g *globals) *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the sandboxes of sessions",
		Long: `List the newest sandbox of each session: those that are starting or running, or with --all also
those that ended, as the sandbox of a parked session did. AGE is the session's.`,
		Example: `  sluice sandbox list
  sluice sandbox list --all --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				sessions, err := c.Sessions(ctx, client.SessionQuery{Limit: maxSandboxes})
				if err != nil {
					return err
				}
				return m.printSandboxes(sandboxes(sessions, all), asJSON)
			})
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "also list sandboxes that ended")
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

// maxSandboxes bounds the list.
const maxSandboxes = 100_000

// sandboxes are the sandboxes of sessions that have started one.
func sandboxes(sessions []schemas.Session, all bool) []sandboxLine {
	out := []sandboxLine{}
	for _, s := range sessions {
		if s.Sandbox != "" && (all || !s.State.Final()) {
			out = append(out, sandboxLine{
				Thread: s.Thread, Session: s.ID, Sandbox: s.Sandbox, Provider: s.Provider, Image: s.Image, State: s.State, Worker: s.Owner, Created: s.Created,
			})
		}
	}
	return out
}

func (m *Main) printSandboxes(list []sandboxLine, asJSON bool) error {
	if asJSON {
		return m.printJSON(list)
	}
	if len(list) == 0 {
		m.notice("no sandbox runs: the next command of a thread starts one")
		return nil
	}
	t, now := m.table("THREAD", "SESSION", "SANDBOX", "PROVIDER", "IMAGE", "STATE", "WORKER", "AGE"), time.Now()
	for _, s := range list {
		t.row(s.Thread, s.Session, s.Sandbox, s.Provider, s.Image, string(s.State), s.Worker, age(s.Created, now))
	}
	return t.print()
}
