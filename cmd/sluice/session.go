package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func (m *Main) sessionCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "session",
		Short: "Create, list and end sessions",
		Long: `Create, list and end sessions. A session is a thread's claim on a sandbox and a workspace. A thread
has one session at a time. Its first command creates it, or "create" does, with a user, tags and
timeouts. A session ends after its idle timeout, at the end of its lifetime, or by "stop". The
workspace stays on the worker until "delete" removes it.`,
		Example: `  sluice session create --thread t1 --user ann --tag team=blue
  sluice session list --tag team=blue
  sluice session stop --thread t1`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	c.AddCommand(m.sessionCreateCommand(g), m.sessionGetCommand(g), m.sessionListCommand(g), m.sessionRenewCommand(g), m.sessionStopCommand(g, false), m.sessionStopCommand(g, true))
	return c
}

func (m *Main) sessionCreateCommand(g *globals) *cobra.Command {
	var req client.SessionRequest
	var tags []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a thread's session, or return the one it has",
		Example: `  sluice session create --thread t1 --template echo-agent --idle-timeout 10m
  sluice session create --thread t1 --user ann --tag team=blue --tag run=7 --start --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if err = needThread(req.Thread); err == nil {
				req.Tags, err = parseTags(tags)
			}
			if err != nil {
				return err
			}
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				_, created, err := c.CreateSession(ctx, req)
				if err != nil {
					return err
				}
				s, err := c.SessionInfo(ctx, req.Thread)
				if err != nil {
					return err
				}
				if asJSON {
					return m.printJSON(struct {
						Created bool             `json:"created"`
						Session *schemas.Session `json:"session"`
					}{created, s})
				}
				if !created {
					m.notice("thread " + req.Thread + " has a session already: the flags for a new one were ignored")
				}
				return m.printSession(s)
			})
		},
	}
	requiredThreadFlag(c, &req.Thread)
	templateFlag(c, &req.Template, "", "`TEMPLATE` of the session; default: the worker's")
	providerFlag(c, &req.Provider, "", "; default: the template's")
	idleTimeoutFlag(c, &req.IdleTimeout, 0, "; default: the template's")
	jsonFlag(c, &asJSON, "one JSON object")
	f := c.Flags()
	f.StringVar(&req.User, "user", "", "label `USER` of the session")
	f.StringArrayVar(&tags, "tag", nil, "label `NAME=VALUE` of the session; may be repeated")
	f.DurationVar(&req.MaxLifetime, "max-lifetime", 0, "longest `DURATION` of the session, even while processes run; default: the template's")
	f.BoolVar(&req.Start, "start", false, "start the sandbox now; default: the first command starts it")
	return c
}

// requiredThreadFlag is --thread of the commands that are about one thread. needThread checks it.
func requiredThreadFlag(c *cobra.Command, thread *string) {
	threadFlag(c, thread, "", "`THREAD` of the session; required")
}

// parseTags reads NAME=VALUE.
func parseTags(tags []string) (map[string]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		name, value, ok := strings.Cut(t, "=")
		if _, again := out[name]; !ok || name == "" || again {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--tag %q is invalid: write NAME=VALUE, and each name once", t)
		}
		out[name] = value
	}
	return out, nil
}

func (m *Main) sessionGetCommand(g *globals) *cobra.Command {
	var thread string
	var asJSON bool
	c := &cobra.Command{
		Use:   "get",
		Short: "Show a thread's session",
		Example: `  sluice session get --thread t1
  sluice session get --thread t1 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needThread(thread); err != nil {
				return err
			}
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				s, err := c.SessionInfo(ctx, thread)
				if err != nil {
					return err
				}
				if asJSON {
					return m.printJSON(s)
				}
				return m.printSession(s)
			})
		},
	}
	requiredThreadFlag(c, &thread)
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

func (m *Main) sessionListCommand(g *globals) *cobra.Command {
	var q client.SessionQuery
	var state string
	var tags []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List sessions",
		Example: `  sluice session list
  sluice session list --user ann --tag team=blue --state running --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Tags, err = parseTags(tags); err != nil {
				return err
			}
			q.State = schemas.SandboxState(state)
			if state != "" && !slices.Contains(schemas.SandboxStates(), q.State) {
				return schemas.Errorf(schemas.CodeInvalidArgument, "unknown --state %q: use one of %v", state, schemas.SandboxStates())
			}
			if q.Limit < 1 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--limit is %d: it must be at least 1", q.Limit)
			}
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				list, err := c.Sessions(ctx, q)
				if err != nil {
					return err
				}
				if asJSON {
					return m.printJSON(list)
				}
				if len(list) == q.Limit {
					defer m.notice(fmt.Sprintf("the list stops at %d sessions: there may be more, raise --limit", q.Limit))
				}
				return m.printSessions(list)
			})
		},
	}
	templateFlag(c, &q.Template, "", "only sessions of this `TEMPLATE`")
	jsonFlag(c, &asJSON, "one JSON array")
	f := c.Flags()
	f.StringVar(&q.User, "user", "", "only sessions of this `USER`")
	f.StringVar(&state, "state", "", "only sessions whose sandbox is in this `STATE`, such as running")
	f.StringArrayVar(&tags, "tag", nil, "only sessions with this tag `NAME=VALUE`; may be repeated")
	f.IntVar(&q.Limit, "limit", 1000, "most sessions `N` to list")
	return c
}

func (m *Main) sessionRenewCommand(g *globals) *cobra.Command {
	var thread string
	var idle time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "renew",
		Short: "Restart a session's idle timeout",
		Example: `  sluice session renew --thread t1
  sluice session renew --thread t1 --idle-timeout 2h`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needThread(thread); err != nil {
				return err
			}
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				s, err := c.RenewSession(ctx, thread, idle)
				if err != nil {
					return err
				}
				if asJSON {
					return m.printJSON(s)
				}
				return m.printSession(s)
			})
		},
	}
	requiredThreadFlag(c, &thread)
	idleTimeoutFlag(c, &idle, 0, "; default: unchanged")
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// sessionStopCommand is stop, or delete where remove is set.
func (m *Main) sessionStopCommand(g *globals, remove bool) *cobra.Command {
	var thread string
	var grace time.Duration
	var snapshot, missingOK, asJSON bool
	c := &cobra.Command{
		Use:   "stop",
		Short: "End a session and keep its workspace",
		Long: `End a session. Its processes get SIGTERM, the grace and SIGKILL; its hooks run; its sandbox ends.
The workspace stays on the worker, and the thread's next command creates a new session in it.`,
		Example: `  sluice session stop --thread t1
  sluice session stop --thread t1 --grace 0s --snapshot --missing-ok`,
		Args: noArgs,
	}
	stop := (*client.Client).StopSession
	if remove {
		c.Use, c.Short, c.Long = "delete", "End a session and remove its workspace", "End a session as stop does, and remove its workspace from the worker. Pushed versions stay."
		c.Example = "  sluice session delete --thread t1\n  sluice session delete --thread t1 --snapshot --missing-ok"
		stop = (*client.Client).DeleteSession
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := needThread(thread); err != nil {
			return err
		}
		if grace < 0 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "--grace is %s: it must not be negative", grace)
		}
		var opts []client.StopOption
		if cmd.Flags().Changed("grace") {
			opts = append(opts, client.StopGrace(grace))
		}
		if snapshot {
			opts = append(opts, client.StopSnapshot())
		}
		if missingOK {
			opts = append(opts, client.StopMissingOK())
		}
		return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
			s, err := stop(c, ctx, thread, opts...)
			switch {
			case err != nil:
				return err
			case asJSON && s == nil:
				return m.printJSON(struct{}{})
			case asJSON:
				return m.printJSON(s)
			case s == nil:
				m.notice("thread " + thread + " has no session")
			default:
				fmt.Fprintf(m.Stdout, "session %s of thread %s has ended\n", oneLine(s.ID), oneLine(s.Thread))
			}
			return nil
		})
	}
	requiredThreadFlag(c, &thread)
	graceFlag(c, &grace, 10*time.Second, "; default: the template's")
	jsonFlag(c, &asJSON, "one JSON object")
	c.Flags().BoolVar(&snapshot, "snapshot", false, "push the workspace first; the session stays if the push fails")
	c.Flags().BoolVar(&missingOK, "missing-ok", false, "succeed when the thread has no session")
	return c
}

// sessionState is the state of a session as tables show it.
func sessionState(s *schemas.Session) string {
	if s.Parked {
		return "parked"
	}
	return or(string(s.State), "new")
}

func (m *Main) printSessions(list []schemas.Session) error {
	t := m.table("THREAD", "SESSION", "STATE", "TEMPLATE", "PROVIDER", "USER", "LAST ACTIVITY", "EXPIRES", "TAGS")
	for _, s := range list {
		t.row(s.Thread, s.ID, sessionState(&s), s.Template, s.Provider, s.User, localTime(s.LastActivity), localTime(s.Expires), tagList(s.Tags))
	}
	return t.print()
}

func (m *Main) printSession(s *schemas.Session) error {
	t := m.table()
	for _, f := range [][2]string{
		{"thread", s.Thread}, {"session", s.ID}, {"state", sessionState(s)}, {"sandbox", s.Sandbox}, {"template", s.Template}, {"provider", s.Provider},
		{"user", s.User}, {"tags", tagList(s.Tags)}, {"worker", s.Owner}, {"epoch", fmt.Sprint(s.Epoch)}, {"workspace", s.Workspace}, {"version", s.Version},
		{"created", localTime(s.Created)}, {"last activity", localTime(s.LastActivity)}, {"expires", localTime(s.Expires)}, {"ends at", localTime(s.Deadline)},
	} {
		t.row(f[0], f[1])
	}
	return t.print()
}

func tagList(tags map[string]string) string {
	out := make([]string, 0, len(tags))
	for name, value := range tags {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
