package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func sessionCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "session",
		Short: "Create, list and end sessions",
		Long: `Create, list and end sessions. A session is a thread's claim on a sandbox and a workspace. A thread
has one session at a time. Its first command creates it, or "create" does, with a user, tags and
timeouts. A session ends after its idle timeout, at the end of its lifetime, or by "stop". The
workspace stays on the worker for a time, which "stop" reports, or until "delete" removes it.`,
		Example: `  sluice session create t1 --user ann --tag team=blue
  sluice session list --tag team=blue
  sluice session push t1
  sluice session stop t1`,
	}, sessionCreateCommand(g), sessionGetCommand(g), sessionListCommand(g), sessionRenewCommand(g),
		sessionPushCommand(g), sessionVersionsCommand(g), sessionRestoreCommand(g), sessionDiffCommand(g), sessionStopCommand(g, false), sessionStopCommand(g, true))
}

// ofNewSession are the flags that change nothing of a session that exists.
var ofNewSession = []string{"user", "tag", "idle-timeout", "max-lifetime"}

func sessionCreateCommand(g *globals) *cobra.Command {
	var req client.SessionRequest
	var tags []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a thread's session, or return the one it has",
		Example: `  sluice session create t1 --template echo-agent --idle-timeout 10m
  sluice session create t1 --user ann --tag team=blue --tag run=7 --start --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if req.Tags, err = parsePairs("--tag", tags); err != nil {
				return err
			}
			return g.with(cmd.Context(), hostOptions{worker: true}, func(ctx context.Context, c *client.Client) error {
				_, created, err := c.CreateSession(ctx, req)
				if err != nil {
					return err
				}
				s, err := c.SessionInfo(ctx, req.Thread)
				if err != nil {
					return err
				}
				if asJSON {
					return g.printJSON(struct {
						Created bool             `json:"created"`
						Session *schemas.Session `json:"session"`
					}{created, s})
				}
				if !created {
					var ignored []string
					for _, flag := range ofNewSession {
						if cmd.Flags().Changed(flag) {
							ignored = append(ignored, "--"+flag)
						}
					}
					text := "thread " + req.Thread + " has a session already"
					if len(ignored) > 0 {
						text += "; for a new one only, and ignored: " + strings.Join(ignored, ", ")
					}
					g.notice(text)
				}
				return printSession(g.Main, s)
			})
		},
	}
	threadArg(c, &req.Thread, sessionThread)
	c.Flags().StringVar(&req.Template, "template", "", "`TEMPLATE` of the session; default: the worker's")
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

// sessionThread is the usage of --thread of the commands about one session.
const sessionThread = "`THREAD` of the session"

func sessionGetCommand(g *globals) *cobra.Command {
	var thread string
	var asJSON bool
	c := &cobra.Command{
		Use:   "get",
		Short: "Show a thread's session",
		Example: `  sluice session get t1
  sluice session get t1 --json`,
		RunE: g.read(func(ctx context.Context, c *client.Client, _ []string) error {
			s, err := c.SessionInfo(ctx, thread)
			if err != nil {
				return sessionError(err, thread)
			}
			return printResult(g.Main, asJSON, s, printSession)
		}),
	}
	threadArg(c, &thread, sessionThread)
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

func sessionListCommand(g *globals) *cobra.Command {
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
			if q.Tags, err = parsePairs("--tag", tags); err != nil {
				return err
			}
			q.State = schemas.SandboxState(state)
			if state != "" && !slices.Contains(schemas.SandboxStates(), q.State) {
				return schemas.Errorf(schemas.CodeInvalidArgument, "unknown --state %q: use one of %v", state, schemas.SandboxStates())
			}
			if q.Limit < 1 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--limit is %d: it must be at least 1", q.Limit)
			}
			return g.with(cmd.Context(), hostOptions{}, func(ctx context.Context, c *client.Client) error {
				list, err := c.Sessions(ctx, q)
				if err != nil {
					return err
				}
				if len(list) == q.Limit && !asJSON {
					defer g.notice(fmt.Sprintf("the list stops at %d sessions: there may be more, raise --limit", q.Limit))
				}
				return printResult(g.Main, asJSON, list, printSessions)
			})
		},
	}
	c.Flags().StringVar(&q.Template, "template", "", "only sessions of this `TEMPLATE`")
	jsonFlag(c, &asJSON, "one JSON array")
	f := c.Flags()
	f.StringVar(&q.User, "user", "", "only sessions of this `USER`")
	f.StringVar(&state, "state", "", "only sessions whose sandbox is in this `STATE`, such as running")
	f.StringArrayVar(&tags, "tag", nil, "only sessions with this tag `NAME=VALUE`; may be repeated")
	f.IntVar(&q.Limit, "limit", 1000, "most sessions `N` to list")
	return c
}

func sessionRenewCommand(g *globals) *cobra.Command {
	var thread string
	var idle time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "renew",
		Short: "Restart a session's idle timeout",
		Example: `  sluice session renew t1
  sluice session renew t1 --idle-timeout 2h`,
		RunE: g.act(func(ctx context.Context, c *client.Client, _ []string) error {
			s, err := c.RenewSession(ctx, thread, idle)
			if err != nil {
				return sessionError(err, thread)
			}
			return printResult(g.Main, asJSON, s, printSession)
		}),
	}
	threadArg(c, &thread, sessionThread)
	idleTimeoutFlag(c, &idle, 0, "; default: unchanged")
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// sessionStopCommand is stop, or delete where remove is set.
func sessionStopCommand(g *globals, remove bool) *cobra.Command {
	var thread string
	var grace time.Duration
	var snapshot, missingOK, asJSON bool
	c := &cobra.Command{
		Use:   "stop",
		Short: "End a session and keep its workspace",
		Long: `End a session. Its processes get SIGTERM, the grace and SIGKILL; its hooks run; its sandbox ends.
The workspace stays on the worker for a time, 24h by default, and the thread's next command creates
a new session in it. When its push fails, the session ends all the same, and the worker pushes
again until that succeeds.`,
		Example: `  sluice session stop t1
  sluice session stop t1 --grace 0s --snapshot --missing-ok`,
	}
	stop := (*client.Client).StopSession
	if remove {
		c.Use, c.Short, c.Long = "delete", "End a session and remove its workspace", "End a session as stop does, and remove its workspace from the worker. Pushed versions stay.\nWhen the push fails, the worker keeps the workspace, and delete reports an error."
		c.Example = "  sluice session delete t1\n  sluice session delete t1 --snapshot --missing-ok"
		stop = (*client.Client).DeleteSession
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
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
		return g.with(cmd.Context(), hostOptions{worker: true}, func(ctx context.Context, c *client.Client) error {
			s, err := stop(c, ctx, thread, opts...)
			switch {
			case asJSON && s != nil:
				return cmp.Or(g.printJSON(s), err)
			case err != nil:
				return sessionError(err, thread)
			case asJSON:
				return g.printJSON(struct{}{})
			case s == nil:
				g.notice("thread " + thread + " has no session")
			default:
				g.printEnd(s)
			}
			return nil
		})
	}
	threadArg(c, &thread, sessionThread)
	graceFlag(c, &grace, 10*time.Second, "; default: the template's")
	jsonFlag(c, &asJSON, "one JSON object")
	c.Flags().BoolVar(&snapshot, "snapshot", false, "push the workspace first; the session stays if the push fails")
	c.Flags().BoolVar(&missingOK, "missing-ok", false, "succeed when the thread has no session")
	return c
}

// sessionState is the state of a session as tables show it: new before its first sandbox, active, parked while it waits without
// one for the next command, or terminating while a sandbox that was to end still has not.
func sessionState(s *schemas.Session) string {
	switch {
	case s.Terminating:
		return "terminating"
	case s.Parked:
		return "parked"
	case s.Sandbox == "":
		return "new"
	default:
		return "active"
	}
}

func printSessions(m *Main, list []schemas.Session) error {
	t := m.list("no session matches: a thread's first command creates one", "THREAD…", "SESSION", "STATE", "SANDBOX", "TEMPLATE…", "PROVIDER", "USER…", "LAST ACTIVITY", "EXPIRES", "TAGS…").
		leaveOut("SESSION", "LAST ACTIVITY", "PROVIDER", "EXPIRES", "USER", "TAGS", "TEMPLATE")
	for _, s := range list {
		t.row(s.Thread, s.ID, sessionState(&s), string(s.State), s.Template, s.Provider, s.User, localTime(s.LastActivity), localTime(s.Expires), tagList(s.Tags))
	}
	return t.print()
}

func printSession(m *Main, s *schemas.Session) error {
	t := m.table()
	for _, f := range [][2]string{
		{"thread", s.Thread}, {"session", s.ID}, {"state", sessionState(s)}, {"sandbox", sandboxState(s)}, {"template", s.Template}, {"provider", s.Provider},
		{"user", s.User}, {"tags", tagList(s.Tags)}, {"worker", s.Owner}, {"epoch", fmt.Sprint(s.Epoch)}, {"workspace", s.Workspace}, {"version", s.Version},
		{"created", localTime(s.Created)}, {"last activity", localTime(s.LastActivity)}, {"expires", localTime(s.Expires)}, {"ends at", localTime(s.Deadline)},
	} {
		t.row(f[0], f[1])
	}
	return t.print()
}

// sandboxState is the id and the state of a session's newest sandbox; empty before there is one.
func sandboxState(s *schemas.Session) string {
	if s.Sandbox == "" {
		return string(s.State)
	}
	return s.Sandbox + ", " + string(s.State)
}

func tagList(tags map[string]string) string {
	var out []string
	for name, value := range tags {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func sandboxCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{Use: "sandbox", Short: "List sandboxes", Example: `  sluice sandbox list`}, sandboxListCommand(g))
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

func sandboxListCommand(g *globals) *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the sandboxes of sessions",
		Long: `List the newest sandbox of each session: those that are starting or running, or with --all also
those that ended, as the sandbox of a parked session did. AGE is the session's.`,
		Example: `  sluice sandbox list
  sluice sandbox list --all --json`,
		Args: noArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, _ []string) error {
			sessions, err := c.Sessions(ctx, client.SessionQuery{Limit: maxSandboxes})
			if err != nil {
				return err
			}
			return printResult(g.Main, asJSON, sandboxes(sessions, all), printSandboxes)
		}),
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "also list sandboxes that ended")
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

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

func printSandboxes(m *Main, list []sandboxLine) error {
	t, now := m.list("no sandbox runs: the next command of a thread starts one", "THREAD…", "SESSION", "SANDBOX", "PROVIDER", "IMAGE…", "STATE", "WORKER…", "AGE").
		leaveOut("SESSION", "IMAGE", "WORKER", "PROVIDER", "AGE"), time.Now()
	for _, s := range list {
		t.row(s.Thread, s.Session, s.Sandbox, s.Provider, s.Image, string(s.State), s.Worker, age(s.Created, now))
	}
	return t.print()
}
