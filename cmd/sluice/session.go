package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func (m *Main) sessionCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "session",
		Short: "Create, find and end sessions: a thread's claim on a sandbox and a workspace",
		Long: `Create, find and end sessions. A thread has one session at a time: the first command makes it, or "create" does, with a user, tags
and limits of its own. It ends when nothing ran in it for its idle timeout, at the end of its lifetime, or by "stop". The workspace's
folder stays on the worker unless "delete" removes it.`,
		Example: `  sluice session create --thread t1 --user ann --tag team=blue
  sluice session list --tag team=blue
  sluice session stop --thread t1`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	c.AddCommand(m.sessionCreateCommand(g), m.sessionGetCommand(g), m.sessionListCommand(g), m.sessionRenewCommand(g), m.sessionStopCommand(g, false), m.sessionStopCommand(g, true))
	return c
}

// threadFlag is the flag of those commands that are about one thread.
func threadFlag(c *cobra.Command, thread *string) {
	c.Flags().StringVarP(thread, "thread", "t", "", "the `THREAD`; required")
}

func needThread(thread string) error {
	if thread == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "--thread is missing: name the thread; `sluice session list` shows those that have a session")
	}
	return schemas.CheckID("thread", thread)
}

func (m *Main) sessionCreateCommand(g *globals) *cobra.Command {
	var req client.SessionRequest
	var tags []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Give a thread its session: the one it has, or a new one",
		Example: `  sluice session create --thread t1 --template python --idle-timeout 10m
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
					m.note("thread " + req.Thread + " has this session already: what was asked for a new one does not count")
				}
				return m.printSession(s)
			})
		},
	}
	threadFlag(c, &req.Thread)
	f := c.Flags()
	f.StringVar(&req.Template, "template", "", "recipe `NAME`; default: the worker's")
	f.StringVar(&req.Provider, "provider", "", "kind of sandbox: `PROVIDER` auto, jail, docker or local; default: the template's")
	f.StringVar(&req.User, "user", "", "whom it is for: `USER`, a label")
	f.StringArrayVar(&tags, "tag", nil, "`NAME=VALUE` to find it by; may be repeated")
	f.DurationVar(&req.IdleTimeout, "idle-timeout", 0, "end it when nothing ran for `D`; default: the template's")
	f.DurationVar(&req.MaxLifetime, "max-lifetime", 0, "end it after `D`, whatever runs; default: the template's")
	f.BoolVar(&req.Start, "start", false, "make its sandbox now; default: the first command does")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
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
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--tag %q: NAME=VALUE, each name once", t)
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
	threadFlag(c, &thread)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
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
				return schemas.Errorf(schemas.CodeInvalidArgument, "--state %q: one of %v", state, schemas.SandboxStates())
			}
			if q.Limit < 1 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--limit %d: at least 1", q.Limit)
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
					defer m.note(fmt.Sprintf("there may be more than these %d: raise --limit", q.Limit))
				}
				return m.printSessions(list)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&q.User, "user", "", "only this `USER`'s")
	f.StringVar(&q.Template, "template", "", "only those of the template `NAME`")
	f.StringVar(&state, "state", "", "only those whose sandbox is in `STATE`, such as running")
	f.StringArrayVar(&tags, "tag", nil, "only those with this tag, `NAME=VALUE`; may be repeated")
	f.IntVar(&q.Limit, "limit", 1000, "at most `N`")
	f.BoolVar(&asJSON, "json", false, "print one JSON array")
	return c
}

func (m *Main) sessionRenewCommand(g *globals) *cobra.Command {
	var thread string
	var idle time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "renew",
		Short: "Begin a session's idle time anew",
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
	threadFlag(c, &thread)
	c.Flags().DurationVar(&idle, "idle-timeout", 0, "and from now on end it when nothing ran for `D`; default: as it was")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// sessionStopCommand is stop, and delete.
func (m *Main) sessionStopCommand(g *globals, remove bool) *cobra.Command {
	var thread string
	var grace time.Duration
	var snapshot, missingOK, asJSON bool
	c := &cobra.Command{
		Use:   "stop",
		Short: "End a session; its workspace's folder stays",
		Long: `End a session: what runs gets SIGTERM, the grace, SIGKILL; its hooks run, its sandbox ends. The workspace's folder stays on the
worker, and the thread's next command makes a new session in it.`,
		Example: `  sluice session stop --thread t1
  sluice session stop --thread t1 --grace 0s --snapshot --missing-ok`,
		Args: noArgs,
	}
	stop := (*client.Client).StopSession
	if remove {
		c.Use, c.Short, c.Long = "delete", "End a session and remove its workspace's folder", "End a session as stop does, and remove its workspace's folder from the worker. What was pushed stays."
		c.Example = "  sluice session delete --thread t1\n  sluice session delete --thread t1 --snapshot --missing-ok"
		stop = (*client.Client).DeleteSession
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := needThread(thread); err != nil {
			return err
		}
		if grace < 0 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "--grace %s: not less than 0", grace)
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
				m.note("thread " + thread + " has no session")
			default:
				fmt.Fprintf(m.Stdout, "session %s of thread %s has ended\n", oneLine(s.ID), oneLine(s.Thread))
			}
			return nil
		})
	}
	threadFlag(c, &thread)
	f := c.Flags()
	f.DurationVar(&grace, "grace", 10*time.Second, "time `D` between SIGTERM and SIGKILL for what runs; default: the template's")
	f.BoolVar(&snapshot, "snapshot", false, "push the workspace first; a push that fails keeps the session")
	f.BoolVar(&missingOK, "missing-ok", false, "a thread without a session is no error")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// sessionState is what a person is told of where a session stands.
func sessionState(s *schemas.Session) string {
	switch {
	case s.Parked:
		return "parked"
	case s.State == "":
		return "new"
	default:
		return string(s.State)
	}
}

func (m *Main) printSessions(list []schemas.Session) error {
	w := tabwriter.NewWriter(m.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "THREAD\tSESSION\tSTATE\tTEMPLATE\tPROVIDER\tUSER\tLAST ACTIVITY\tEXPIRES\tTAGS")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(s.Thread), oneLine(s.ID), oneLine(sessionState(&s)), dash(s.Template), oneLine(s.Provider),
			dash(s.User), when(s.LastActivity), when(s.Expires), dash(tagLine(s.Tags)))
	}
	return w.Flush()
}

func (m *Main) printSession(s *schemas.Session) error {
	w := tabwriter.NewWriter(m.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range [][2]string{
		{"thread", s.Thread}, {"session", s.ID}, {"state", sessionState(s)}, {"sandbox", s.Sandbox}, {"template", s.Template}, {"provider", s.Provider},
		{"user", s.User}, {"tags", tagLine(s.Tags)}, {"worker", s.Owner}, {"epoch", fmt.Sprint(s.Epoch)}, {"workspace", s.Workspace}, {"version", s.Version},
		{"created", when(s.Created)}, {"last activity", when(s.LastActivity)}, {"expires", when(s.Expires)}, {"ends at", when(s.Deadline)},
	} {
		fmt.Fprintf(w, "%s\t%s\n", f[0], dash(f[1]))
	}
	return w.Flush()
}

func tagLine(tags map[string]string) string {
	out := make([]string, 0, len(tags))
	for name, value := range tags {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func dash(s string) string { return or(oneLine(s), "-") }

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}
