package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// Bounds of a completion: the user waits for it in the middle of a line.
const (
	completionTimeout    = time.Second // where completionTimeoutEnv names none
	completionTimeoutEnv = "SLUICE_COMPLETION_TIMEOUT"

	maxCompletions = 200
	maxDescription = 50 // columns
)

func completionCommand(m *Main) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for bash, zsh or fish",
		Long: `Print the completion script for bash, zsh or fish. Besides commands and flags, it completes the
threads, processes, services, templates, workers, tokens and versions of the server that runs. It
starts no server, and gives up after a second; SLUICE_COMPLETION_TIMEOUT=5s waits longer for one
that is far away. The script for bash needs the package bash-completion.`,
		Example: `  source <(sluice completion bash)     # in ~/.bashrc
  sluice completion zsh > "${fpath[1]}/_sluice"
  sluice completion fish > ~/.config/fish/completions/sluice.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      exactArgs(1, "the name of one SHELL: bash, zsh or fish"),
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(m.Stdout, true)
			case "zsh":
				return c.Root().GenZshCompletion(m.Stdout)
			case "fish":
				return c.Root().GenFishCompletion(m.Stdout, true)
			}
			return schemas.Errorf(schemas.CodeInvalidArgument, "unknown shell %q: use bash, zsh or fish", args[0])
		},
	}
}

// choice is a value that may be typed, with its description.
type choice struct{ value, about string }

// completer completes what the user types. The words in a command's usage and in the usage of its flags say what is meant: THREAD,
// PROCESS and so on.
type completer struct{ *globals }

// install makes c and its commands complete their arguments and flags.
func (p completer) install(c *cobra.Command) {
	if !c.HasSubCommands() && c.ValidArgs == nil {
		words := arguments(c)
		c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			n := len(args)
			if last := len(words) - 1; n > last && last >= 0 && strings.HasSuffix(words[last], ellipsis) {
				n = last
			}
			if n >= len(words) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return p.complete(c, strings.TrimSuffix(words[n], ellipsis), args, typed)
		}
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		if f.Value.Type() != "bool" && kind != "NAME" { // a new one, or one of the configuration
			_ = c.RegisterFlagCompletionFunc(f.Name, func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				return p.complete(c, kind, args, typed)
			}) // an error means that it is registered already
		}
	})
	for _, sub := range c.Commands() {
		p.install(sub)
	}
}

// arguments are the words for a command's arguments, in order. What comes behind -- is another program's.
func arguments(c *cobra.Command) (words []string) {
	for _, w := range strings.Fields(c.Use)[1:] {
		switch {
		case w == "--" || strings.HasPrefix(w, "--"):
			return append(words, "COMMAND")
		case w != "[flags]":
			if inner, ok := strings.CutPrefix(w, "["); ok {
				w = strings.TrimSuffix(inner, "]")
			}
			words = append(words, w)
		}
	}
	return words
}

// complete returns what may stand for a word. It is silent on failure.
func (p completer) complete(c *cobra.Command, kind string, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	suffix := ""
	switch kind {
	case "FILE", "FILE|-", "COMMAND", "DIR", "FOLDER", "PATH", "URL":
		return nil, cobra.ShellCompDirectiveDefault
	case "FROM", "TO":
		if isSync(c) {
			kind = "VERSION"
			break
		}
		directive = cobra.ShellCompDirectiveDefault // of files, where no thread is meant
		fallthrough
	case "THREAD:PATH", "THREAD:[PATH]":
		kind, suffix = "THREAD", ":"
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	var out []string
	for _, v := range p.choices(c, kind, args) {
		if strings.HasPrefix(v.value, typed) && completable().MatchString(v.value) && len(out) < maxCompletions {
			out = append(out, v.value+suffix+"\t"+cut(boundedLine(v.about), maxDescription))
		}
	}
	if len(out) == 0 {
		directive &^= cobra.ShellCompDirectiveNoSpace
	}
	return out, directive
}

// completable is what a shell takes as it is: values come from other users.
func completable() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:@/+-]*$`) }

// choices returns the values for a word within the time for a completion; none on failure.
func (p completer) choices(c *cobra.Command, kind string, args []string) []choice {
	switch kind {
	case "STATE":
		return choicesOf(schemas.SandboxStates(), func(s schemas.SandboxState) choice { return choice{string(s), ""} })
	case "SCOPE":
		return []choice{{string(schemas.ScopeRead), "see what is there"}, {string(schemas.ScopeExec), "run commands, change files"}, {string(schemas.ScopeAdmin), "manage tokens too"}}
	case "PROVIDER":
		return choicesOf([]string{schemas.ProviderAuto, schemas.ProviderJail, schemas.ProviderDocker, schemas.ProviderLocal}, func(s string) choice { return choice{s, ""} })
	}
	limit, err := time.ParseDuration(p.Getenv(completionTimeoutEnv))
	if err != nil || limit <= 0 {
		limit = completionTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	found := make(chan []choice, 1)
	go func() { // to connect may take longer than ctx allows: the program then ends without it
		list, err := p.live(ctx, c, kind, args)
		if err != nil {
			list = nil
		}
		found <- list
	}()
	select {
	case list := <-found:
		return list
	case <-ctx.Done():
		return nil
	}
}

// choicesOf makes choices of a list.
func choicesOf[T any](list []T, f func(T) choice) []choice {
	out := make([]choice, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

// live asks the server that runs. It starts none.
func (p completer) live(ctx context.Context, cmd *cobra.Command, kind string, args []string) ([]choice, error) {
	switch {
	case isSync(cmd) && kind == "VERSION":
		return p.storedVersions(ctx, cmd, args)
	case kind == "TEMPLATE", kind == "NAME" && cmd.Parent().Name() == "template":
		list, err := p.runningTemplates(ctx)
		return choicesOf(list, func(t *schemas.Template) choice { return choice{t.Name, t.Description} }), err
	}
	lists := map[string]func(context.Context, *client.Client, *cobra.Command, []string) ([]choice, error){
		"THREAD": threadChoices, "PROCESS": processChoices, "NAME": serviceChoices, "ID": idChoices, "WORKER": workerChoices, "USER": userChoices,
		"VERSION": versionChoices,
	}
	list := lists[kind]
	if list == nil {
		return nil, nil
	}
	conn, _, err := p.connectToRunning()
	if err != nil {
		return nil, err
	}
	defer conn.conn.Close()
	return list(ctx, conn.client, cmd, args)
}

// runningTemplates are those of the workers of the server that runs.
func (p completer) runningTemplates(ctx context.Context) ([]*schemas.Template, error) {
	conn, _, err := p.connectToRunning()
	if err != nil {
		return nil, err
	}
	defer conn.conn.Close()
	return conn.client.Templates(ctx)
}

// threadChoices are the threads with a session or, to remove a workspace, with one that is kept.
func threadChoices(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) ([]choice, error) {
	if cmd.Parent().Name() == "workspace" {
		list, err := c.Workspaces(ctx)
		return choicesOf(list, func(w schemas.Workspace) choice { return choice{w.Thread, "on worker " + w.Worker} }), err
	}
	list, err := c.Sessions(ctx, client.SessionQuery{Limit: maxCompletions})
	return choicesOf(list, func(s schemas.Session) choice { return choice{s.Thread, s.Template + ", " + sessionState(&s)} }), err
}

// processChoices are the processes that run, and for commands that read their records also those that have ended.
func processChoices(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) ([]choice, error) {
	q := client.ProcessQuery{Thread: threadOf(cmd, nil), Limit: maxCompletions}
	q.All = slices.Contains([]string{"logs", "get", "wait", "follow", "events", "limits"}, cmd.Name())
	list, err := c.Processes(ctx, q)
	return choicesOf(list, func(p schemas.ProcessInfo) choice {
		return choice{p.Process, string(p.Status) + ": " + commandLine(p.Command, p.Args)}
	}), err
}

// serviceChoices are the services of a thread.
func serviceChoices(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) ([]choice, error) {
	if cmd.Parent().Name() != "service" {
		return nil, nil
	}
	list, err := c.Services(threadOf(cmd, args)).List(ctx)
	return choicesOf(list, func(s schemas.Service) choice { return choice{s.Name, string(s.State)} }), err
}

// idChoices are the ids of tokens or of sessions.
func idChoices(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) ([]choice, error) {
	if cmd.Parent().Name() == "token" {
		list, err := client.NewTokens(c).List(ctx)
		return choicesOf(list, func(k schemas.Token) choice { return choice{k.ID, string(k.Scope) + " " + k.Name} }), err
	}
	list, err := c.Sessions(ctx, client.SessionQuery{Limit: maxCompletions})
	return choicesOf(list, func(s schemas.Session) choice { return choice{s.ID, "thread " + s.Thread} }), err
}

func workerChoices(ctx context.Context, c *client.Client, _ *cobra.Command, _ []string) ([]choice, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	return choicesOf(s.Workers, func(w schemas.WorkerStatus) choice { return choice{w.ID, strings.Join(w.Providers, ", ")} }), nil
}

func userChoices(ctx context.Context, c *client.Client, _ *cobra.Command, _ []string) ([]choice, error) {
	list, err := c.Sessions(ctx, client.SessionQuery{Limit: maxCompletions})
	slices.SortFunc(list, func(a, b schemas.Session) int { return strings.Compare(a.User, b.User) })
	list = slices.CompactFunc(list, func(a, b schemas.Session) bool { return a.User == b.User })
	return choicesOf(list, func(s schemas.Session) choice { return choice{s.User, ""} }), err
}

// versionChoices are the stored versions of a session whose sandbox runs: to ask for those of another would start its sandbox.
func versionChoices(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) ([]choice, error) {
	s, err := c.SessionInfo(ctx, threadOf(cmd, args))
	if err != nil || s.State != schemas.SandboxRunning {
		return nil, err
	}
	handle, err := c.Session(ctx, s.Thread)
	if err != nil {
		return nil, err
	}
	list, err := handle.Versions(ctx)
	return choicesOf(list, func(v schemas.WorkspaceVersion) choice { return choice{v.ID, localTime(v.Time)} }), err
}

// storedVersions are the versions at the URL of a command of `sluice sync`.
func (p completer) storedVersions(ctx context.Context, cmd *cobra.Command, args []string) ([]choice, error) {
	i := slices.Index(arguments(cmd), "URL")
	if i < 0 || i >= len(args) {
		return nil, nil
	}
	f := &syncFlags{Main: p.Main, quiet: true, reads: true}
	for name, to := range map[string]*string{"endpoint": &f.endpoint, "region": &f.region, "profile": &f.profile, "key-file": &f.keyFile} {
		*to, _ = cmd.Flags().GetString(name) // "" for one that is not there
	}
	var list []syncer.Version
	err := f.withSyncer(ctx, ".", args[i], func(ctx context.Context, s *syncer.Syncer, _ *syncProgress) (err error) {
		list, err = s.Versions(ctx)
		return err
	})
	return choicesOf(list, func(v syncer.Version) choice { return choice{v.ID, localTime(v.Time)} }), err
}

// threadOf is the thread that a command line names so far: by --thread, or as its first argument.
func threadOf(cmd *cobra.Command, args []string) string {
	if f := cmd.Flags().Lookup("thread"); f != nil && f.Changed {
		return f.Value.String()
	}
	if words := arguments(cmd); len(args) > 0 && len(words) > 0 && words[0] == "THREAD" {
		return args[0]
	}
	return ""
}
