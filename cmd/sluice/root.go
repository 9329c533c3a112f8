package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/internal/discover"
	"github.com/sluice-dev/sluice/schemas"
)

// globals is the program with the flags of every command.
type globals struct {
	*Main
	nats, creds, ca string
	token           string
	domain          string // of JetStream
	data            string
	cell, tenant    string
	templates       string
	agents          []string // the agent templates that are switched on
	allow           string
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
	g := &globals{Main: m}
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
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	withCommands(root)
	root.SetHelpFunc(m.help)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if args := c.Flags().Args(); c.HasSubCommands() && len(args) > 0 {
			return group(c, args) // the flag is one of the command that does not exist
		}
		return schemas.Errorf(schemas.CodeInvalidArgument, "%w: see `%s --help`", flagError(err), c.CommandPath())
	})
	f, env := root.PersistentFlags(), discover.Environment(m.Getenv)
	f.StringVar(&g.nats, "nats", env.URL, "NATS server `URL`; default: the `sluice up` of the data folder, or a server in this process (SLUICE_NATS_URL)")
	f.StringVar(&g.domain, "js-domain", env.Domain, "JetStream `DOMAIN` of the streams, when the server of --nats is a leaf node (SLUICE_JS_DOMAIN)")
	if env.URL != "" {
		f.Lookup("nats").DefValue = schemas.PublicURL(env.URL) // the help prints it
	}
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if f.Changed("nats") && schemas.HasUserInfo(g.nats) {
			g.notice("warning: every user of this machine can read the credentials in --nats: set SLUICE_NATS_URL or SLUICE_NATS_TOKEN instead")
		}
		// Such as --data "$UNSET", which would put the streams into the current folder, or --allow, which would allow everything.
		for _, name := range []string{"data", "allow", "templates", "creds", "tls-ca", "nats"} {
			if flag := f.Lookup(name); flag.Changed && strings.TrimSpace(flag.Value.String()) == "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--%s is empty: give it a value, or leave it out", name)
			}
		}
		return checkEnv(c)
	}
	f.StringVar(&g.ca, "tls-ca", env.CA, "certificate `FILE` of the authorities of the NATS server; default: the system's (SLUICE_NATS_CA)")
	f.StringVar(&g.creds, "creds", env.Creds, "NATS credentials `FILE`, such as one of \"sluice tenant\" (SLUICE_NATS_CREDS)")
	f.StringVar(&g.data, "data", env.Data, "data `FOLDER` with streams, workspaces and token (SLUICE_DATA)")
	f.StringVar(&g.cell, "cell", env.Cell, "cell `NAME` (SLUICE_CELL)")
	f.StringVar(&g.tenant, "tenant", env.Tenant, "tenant `NAME` (SLUICE_TENANT)")
	f.BoolVar(&m.wide, "wide", false, "cut and leave out nothing of tables that are wider than the terminal")
	f.StringVar(&g.templates, "templates", m.Getenv("SLUICE_TEMPLATES"), "template `FOLDER` of a worker that this command starts (SLUICE_TEMPLATES)")
	agents := strings.FieldsFunc(m.Getenv("SLUICE_AGENT_TEMPLATES"), func(r rune) bool { return r == ',' || r == ' ' })
	f.StringSliceVar(&g.agents, "agent-templates", agents,
		"built-in agent templates `NAME,…` of a worker that this command starts, or all; default: none (SLUICE_AGENT_TEMPLATES)")
	f.StringVar(&g.allow, "allow", m.Getenv("SLUICE_ALLOW"), "`FILE` of the templates, networks and images that tenants may use, of a worker that this command starts (SLUICE_ALLOW)")
	// Every user of the machine can read the command line: the token comes from the environment only.
	g.token = env.Token
	add := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	add(groupRun, "Run:", execCommand(g), shellCommand(g), attachCommand(g), messageCommand(g), portForwardCommand(g), mcpCommand(g))
	add(groupObserve, "Observe:", psCommand(g), topCommand(g), logsCommand(g), eventsCommand(g), messagesCommand(g), statusCommand(g), limitsCommand(g))
	add(groupSessions, "Sessions, sandboxes and processes:", sessionCommand(g), sandboxCommand(g), workspaceCommand(g), processCommand(g), serviceCommand(g), templateCommand(g))
	add(groupData, "Data:", fileCommand(g), copyCommand(g), syncCommand(m))
	add(groupOperate, "Operate:", upCommand(g), workerCommand(g), gatewayCommand(g), tokenCommand(g), tenantCommand(g), keygenCommand(g), reloadCommand(g), doctorCommand(g),
		versionCommand(m), completionCommand(m), manCommand(m))
	if slices.Contains(m.Args, cobra.ShellCompRequestCmd) || slices.Contains(m.Args, cobra.ShellCompNoDescRequestCmd) {
		// Else it would cost each start a fifth of its time.
		completer{g}.install(root)
	}
	return root
}

// withCommands makes c a command that only has subcommands.
func withCommands(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args, c.RunE = cobra.ArbitraryArgs, group
	c.AddCommand(commands...)
	return c
}

// group is the action of a command that only has subcommands: it prints the help.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := ""
	if near := suggestion(c, args[0]); near != "" {
		hint = "did you mean `" + c.CommandPath() + " " + near + "`? "
	}
	return schemas.Errorf(schemas.CodeInvalidArgument, "unknown command %q for `%s`: %ssee `%s --help`", args[0], c.CommandPath(), hint, c.CommandPath())
}

// suggestion returns the subcommand that does what another tool does under this name, or else the one whose name is nearest; empty for
// none.
func suggestion(c *cobra.Command, typed string) string {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && slices.Contains(otherNames(sub.Name()), strings.ToLower(typed)) {
			return sub.Name()
		}
	}
	for c.SuggestionsMinimumDistance = 1; c.SuggestionsMinimumDistance <= 2; c.SuggestionsMinimumDistance++ {
		if near := c.SuggestionsFor(typed); len(near) > 0 {
			return near[0]
		}
	}
	return ""
}

// otherNames are what Docker, Unix and their like call the command of this name.
func otherNames(command string) []string {
	switch command {
	case "exec":
		return []string{"run", "sh"}
	case "ps":
		return []string{"ls", "jobs"}
	case "list":
		return []string{"ls", "ps"}
	case "status":
		return []string{"info", "health"}
	case "sync":
		return []string{"push", "pull"}
	case "cp":
		return []string{"copy", "upload", "download"}
	case "file":
		return []string{"files", "cat"}
	case "process":
		return []string{"kill", "cancel", "stop"}
	case "session":
		return []string{"rm", "create"}
	case "delete":
		return []string{"rm", "remove"}
	case "get":
		return []string{"show", "inspect"}
	case "show":
		return []string{"get", "inspect", "cat"}
	case "up":
		return []string{"start", "serve", "server"}
	}
	return nil
}

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

func oneProcess(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "`%s` needs the id of a PROCESS: `sluice process list --all` shows them", c.CommandPath())
	}
	return exactArgs(1, "one PROCESS")(c, args)
}

// helpWidth is the most columns of a line of help.
const helpWidth = 100

// help prints a command's help. The global flags appear in the root command's help only, and its commands in groups.
func (m *Main) help(c *cobra.Command, _ []string) {
	w := tabwriter.NewWriter(m.Stdout, 0, 0, 3, ' ', 0)
	defer func() { _ = w.Flush() }() // it fails when the reader of the output has left
	section := func(title, body string) {
		if body = strings.TrimRight(body, "\n"); body != "" {
			fmt.Fprintf(w, "\n%s\n%s\n", title, body)
		}
	}
	fmt.Fprintln(w, cmp.Or(c.Long, c.Short+"."))
	usage := c.UseLine()
	if c.HasAvailableSubCommands() {
		usage = c.CommandPath() + " COMMAND [flags]"
	}
	section("Usage:", "  "+usage)
	section("Examples:", c.Example)
	if groups := c.Groups(); len(groups) > 0 {
		for _, g := range groups {
			section(g.Title, commandList(c, g.ID))
		}
	} else {
		section("Commands:", commandList(c, ""))
	}
	if c.HasParent() {
		section("Flags:", ownFlags(c).FlagUsagesWrapped(helpWidth))
		if !isSync(c) { // which needs no server
			fmt.Fprintln(w, "\nGlobal flags (--nats, --data, --tenant …): see `"+c.Root().Name()+" --help`.")
		}
	} else {
		section("Global flags:", c.Flags().FlagUsagesWrapped(helpWidth))
		fmt.Fprintf(w, "\n`%s COMMAND --help` shows the flags of a command.\n", c.Name())
	}
}

func commandList(c *cobra.Command, group string) string {
	var b strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.GroupID == group {
			fmt.Fprintf(&b, "  %s\t%s\n", sub.Name(), sub.Short)
		}
	}
	return b.String()
}

// ownFlags are a command's flags without the global ones and --help.
func ownFlags(c *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	global := c.Root().PersistentFlags()
	add := func(f *pflag.Flag) {
		if global.Lookup(f.Name) != f && f.Name != "help" {
			own.AddFlag(f)
		}
	}
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	return own
}
