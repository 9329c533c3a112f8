package main

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/schemas"
)

// globals are the flags every command has.
type globals struct {
	nats, creds, token string
	data               string
	cell, tenant       string
}

func (m *Main) rootCommand() *cobra.Command {
	g := &globals{}
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Run commands for agents and pipelines: in over NATS, isolated, durable and resumable out",
		Example: `  sluice exec --provider local -- bash -c 'echo hello'
  sluice up --provider local`,
		Version: version, SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE:              group,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return schemas.Errorf(schemas.CodeInvalidArgument, "%w: see `%s --help`", err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&g.nats, "nats", m.Getenv("SLUICE_NATS_URL"), "NATS server `URL`; default: the `sluice up` of the data folder, else one in this process (SLUICE_NATS_URL)")
	f.StringVar(&g.creds, "creds", m.Getenv("SLUICE_NATS_CREDS"), "NATS credentials `FILE` (SLUICE_NATS_CREDS)")
	f.StringVar(&g.data, "data", m.dataFolder(), "data `FOLDER`: streams, workspaces, token (SLUICE_DATA)")
	f.StringVar(&g.cell, "cell", or(m.Getenv("SLUICE_CELL"), schemas.DefaultCell), "cell `NAME` (SLUICE_CELL)")
	f.StringVar(&g.tenant, "tenant", or(m.Getenv("SLUICE_TENANT"), schemas.DefaultTenant), "tenant `NAME` (SLUICE_TENANT)")
	// A token on the command line would be seen by everybody on the machine: it comes from the environment alone.
	g.token = m.Getenv("SLUICE_NATS_TOKEN")
	root.AddCommand(
		m.execCommand(g), m.upCommand(g), m.workerCommand(g), m.logsCommand(g), m.eventsCommand(g), m.messagesCommand(g), m.processCommand(g), m.sessionCommand(g),
		newSyncCommand(), m.doctorCommand(g),
	)
	return root
}

// group is a command that only holds others: by itself it explains them.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := "."
	c.SuggestionsMinimumDistance = 2 // cobra sets its own default only for an error it makes itself
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = ", did you mean `" + c.CommandPath() + " " + near[0] + "`?"
	}
	return schemas.Errorf(schemas.CodeInvalidArgument, "there is no command %q in `%s`%s See `%s --help`", args[0], c.CommandPath(), hint, c.CommandPath())
}

// noArgs refuses what a command would not look at.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return schemas.Errorf(schemas.CodeInvalidArgument, "`%s` takes no arguments, and got %q: see `%s --help`", c.CommandPath(), args[0], c.CommandPath())
}

// oneProcess asks for a process's id.
func oneProcess(c *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "name the PROCESS: `sluice process list --all` shows what there is")
	default:
		return schemas.Errorf(schemas.CodeInvalidArgument, "`%s` takes one PROCESS, and got %d", c.CommandPath(), len(args))
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// dataFolder is where the user's data belongs on this system.
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
