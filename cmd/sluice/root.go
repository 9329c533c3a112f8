package main

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/schemas"
)

// globals are the flags of every command.
type globals struct {
	nats, creds, token string
	data               string
	cell, tenant       string
	templates          string
}

// The groups of the root command's help, in this order.
const (
	groupRun      = "run"
	groupObserve  = "observe"
	groupSessions = "sessions"
	groupData     = "data"
	groupOperate  = "operate"
)

func (m *Main) rootCommand() *cobra.Command {
	g := &globals{}
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Run commands for agents and pipelines: in over NATS, isolated, durable and resumable out",
		Long: `Run commands for agents and pipelines: in over NATS, isolated, durable and resumable out.

Each thread (conversation) has its own sandbox and workspace. "sluice exec" needs no setup: without
a server it starts what it needs in its own process.`,
		Example: `  sluice exec -- bash -c 'echo hello'    # run a command
  sluice up                              # keep a server and a worker running
  sluice status                          # show the server, its workers and its streams`,
		Version: version, SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE:              group,
	}
	root.SetHelpFunc(m.help)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return schemas.Errorf(schemas.CodeInvalidArgument, "%w: see `%s --help`", err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&g.nats, "nats", m.Getenv("SLUICE_NATS_URL"), "NATS server `URL`; default: the `sluice up` of the data folder, or a server in this process (SLUICE_NATS_URL)")
	f.StringVar(&g.creds, "creds", m.Getenv("SLUICE_NATS_CREDS"), "NATS credentials `FILE` (SLUICE_NATS_CREDS)")
	f.StringVar(&g.data, "data", m.dataFolder(), "data `FOLDER` with streams, workspaces and token (SLUICE_DATA)")
	f.StringVar(&g.cell, "cell", or(m.Getenv("SLUICE_CELL"), schemas.DefaultCell), "cell `NAME` (SLUICE_CELL)")
	f.StringVar(&g.tenant, "tenant", or(m.Getenv("SLUICE_TENANT"), schemas.DefaultTenant), "tenant `NAME` (SLUICE_TENANT)")
	f.StringVar(&g.templates, "templates", m.Getenv("SLUICE_TEMPLATES"), "template `FOLDER` of a worker that this command starts (SLUICE_TEMPLATES)")
	// Every user of the machine can read the command line: the token comes from the environment only.
	g.token = m.Getenv("SLUICE_NATS_TOKEN")
	add := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	add(groupRun, "Run:", m.execCommand(g), m.messageCommand(g))
	add(groupObserve, "Observe:", m.psCommand(g), m.logsCommand(g), m.eventsCommand(g), m.messagesCommand(g), m.statusCommand(g))
	add(groupSessions, "Sessions, sandboxes and processes:", m.sessionCommand(g), m.sandboxCommand(g), m.processCommand(g), m.templateCommand(g))
	add(groupData, "Data:", m.syncCommand())
	add(groupOperate, "Operate:", m.upCommand(g), m.workerCommand(g), m.doctorCommand(g), m.versionCommand())
	return root
}

// group is the action of a command that only has subcommands: it prints the help.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := ""
	c.SuggestionsMinimumDistance = 2 // cobra sets its default only for errors of its own
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean `" + c.CommandPath() + " " + near[0] + "`? "
	}
	return schemas.Errorf(schemas.CodeInvalidArgument, "unknown command %q for `%s`: %ssee `%s --help`", args[0], c.CommandPath(), hint, c.CommandPath())
}

// noArgs rejects arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return schemas.Errorf(schemas.CodeInvalidArgument, "`%s` takes no arguments, got %q: see `%s --help`", c.CommandPath(), args[0], c.CommandPath())
}

// exactArgs requires these arguments, which usage names: "DIR URL".
func exactArgs(n int, usage string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return schemas.Errorf(schemas.CodeInvalidArgument, "`%s` takes %s, got %d: see `%s --help`", c.CommandPath(), usage, len(args), c.CommandPath())
	}
}

// oneProcess requires the id of one process.
func oneProcess(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "`%s` needs the id of a PROCESS: `sluice process list --all` shows them", c.CommandPath())
	}
	return exactArgs(1, "one PROCESS")(c, args)
}

// dataFolder is the default of --data on this system.
func (m *Main) dataFolder() string {
	if d := m.Getenv("SLUICE_DATA"); d != "" {
		return d
	}
	if d := m.Getenv("XDG_DATA_HOME"); d != "" && filepath.IsAbs(d) {
		return filepath.Join(d, "sluice")
	}
	home := m.Getenv("HOME")
	if home == "" {
		home = os.TempDir()
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "sluice")
	}
	return filepath.Join(home, ".local", "share", "sluice")
}
