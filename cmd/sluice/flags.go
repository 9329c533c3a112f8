package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// The flags that several commands have. Each has one name, one letter and one value name, wherever it is.

func threadFlag(c *cobra.Command, thread *string, standard, usage string) {
	c.Flags().StringVarP(thread, "thread", "t", standard, usage)
}

// threadArg is the THREAD of the commands about one thread: their argument, or --thread. It is checked before they run.
func threadArg(c *cobra.Command, thread *string, usage string) {
	c.Use += " THREAD"
	threadFlag(c, thread, "", usage+", in place of the argument")
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 1 && *thread != "" {
			return schemas.Errorf(schemas.CodeInvalidArgument, "`%s` takes one THREAD, as its argument or with --thread: see `%[1]s --help`", c.CommandPath())
		}
		return nil
	}
	c.PreRunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			*thread = args[0]
		}
		if *thread == "" {
			return schemas.Errorf(schemas.CodeInvalidArgument, "THREAD is missing: name the thread; `sluice session list` shows those with a session")
		}
		return schemas.CheckID("thread", *thread)
	}
}

func jsonFlag(c *cobra.Command, asJSON *bool, what string) {
	c.Flags().BoolVar(asJSON, "json", false, "print "+what)
}

func followFlag(c *cobra.Command, follow *bool, until string) {
	c.Flags().BoolVarP(follow, "follow", "f", false, "follow until "+until)
}

func fromFlag(c *cobra.Command, from *uint64, stream string) {
	c.Flags().Uint64Var(from, "from", 1, "first sequence `SEQ` of the "+stream+" stream; --json shows them")
}

func keyFlag(c *cobra.Command, key *string) {
	c.Flags().StringVar(key, "key", "", "idempotency `KEY`: repeated with the same key, it runs once and returns the same result")
}

func labelFlag(c *cobra.Command, labels *[]string, usage string) {
	c.Flags().StringArrayVarP(labels, "label", "l", nil, usage)
}

// origin is the labels of --label, and the trace context of this process's environment.
func (m *Main) origin(labels []string) (schemas.Origin, error) {
	named, err := parsePairs("--label", labels)
	return schemas.Origin{Labels: named}.WithTrace(m.Getenv(schemas.EnvTraceParent), m.Getenv(schemas.EnvTraceState)), err
}

// parsePairs reads the values NAME=VALUE of a flag.
func parsePairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, pair := range list {
		name, value, ok := strings.Cut(pair, "=")
		if _, again := out[name]; !ok || name == "" || again {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s %q is invalid: write NAME=VALUE, and each name once", flag, pair)
		}
		out[name] = value
	}
	return out, nil
}

func sessionFlag(c *cobra.Command, session *string) {
	c.Flags().StringVar(session, "session", "", "session `ID` that the thread must have, or else session_expired")
}

func providerFlag(c *cobra.Command, provider *string, standard, usage string) {
	c.Flags().StringVar(provider, "provider", standard, "sandbox `PROVIDER`: "+node.ProviderNames()+" (no isolation)"+usage)
}

func graceFlag(c *cobra.Command, grace *time.Duration, standard time.Duration, usage string) {
	spanVar(c.Flags(), grace, "grace", standard, "time `DURATION` between SIGTERM and SIGKILL"+usage)
}

func idleTimeoutFlag(c *cobra.Command, idle *time.Duration, standard time.Duration, usage string) {
	spanVar(c.Flags(), idle, "idle-timeout", standard, "idle time `DURATION` after which a session ends"+usage)
}

// limitFlags are the limits and the network of sandboxes, for every command that can start a worker. Package workspace names some of
// these flags in its errors.
func (m *Main) limitFlags(c *cobra.Command, l *sandbox.Limits, network *string) {
	d := sandbox.DefaultLimits()
	l.MemoryBytes = d.MemoryBytes
	s := c.Flags()
	s.Var((*size)(&l.MemoryBytes), "memory", "most memory `SIZE` of a sandbox, such as 2GiB")
	s.Float64Var(&l.CPUs, "cpus", d.CPUs, "most CPU time of a sandbox, in CPUs `N`, such as 1.5")
	s.Int64Var(&l.PIDs, "pids", d.PIDs, "most processes and threads `N` of a sandbox")
	s.Int64Var(&l.OpenFiles, "open-files", d.OpenFiles, "most open files `N` of a process of a jail or container")
	s.StringVar(network, "network", string(schemas.NetworkNone), "`NETWORK` of sandboxes whose template names none: none, or host, the machine's own")
	documents, _ := m.documentLimits() // what is wrong with them is an error of the worker that this command starts
	standard := sandbox.LimitsOf(&documents).WorkspaceDefaults()
	l.WorkspaceBytes, l.FileBytes = standard.WorkspaceBytes, standard.FileBytes
	s.Var((*size)(&l.WorkspaceBytes), "workspace-bytes", "most bytes `SIZE` of all files of a workspace (MAX_WORKSPACE_SIZE_MB)")
	s.Int64Var(&l.WorkspaceFiles, "workspace-files", standard.WorkspaceFiles, "most files and folders `N` of a workspace (MAX_TOTAL_FILES)")
	s.Var((*size)(&l.FileBytes), "file-bytes", "most bytes `SIZE` of a file (MAX_FILE_SIZE_MB)")
	s.Var((*reserve)(&l.MinFreeBytes), "min-free", "least free space `SIZE` of the disk of workspaces: below it no process starts (default 1GiB, at most 5%; 0 for none)")
}

// limitNames are the flags of limitFlags.
func limitNames() []string {
	return []string{"memory", "cpus", "pids", "open-files", "network", "workspace-bytes", "workspace-files", "file-bytes", "min-free"}
}

// givenLimit is the first flag of limitFlags that the user gave; empty for none.
func givenLimit(c *cobra.Command) string {
	names := limitNames()
	if i := slices.IndexFunc(names, c.Flags().Changed); i >= 0 {
		return names[i]
	}
	return ""
}

// span is a flag's duration that is not negative.
type span time.Duration

func spanVar(f *pflag.FlagSet, of *time.Duration, name string, standard time.Duration, usage string) {
	*of = standard
	f.Var((*span)(of), name, usage)
	if standard == 0 {
		f.Lookup(name).DefValue = "" // the help prints no default
	}
}

// Set implements pflag.Value.
func (s *span) Set(text string) error {
	d, err := duration(text)
	*s = span(d)
	return err
}

// String implements pflag.Value.
func (s *span) String() string { return time.Duration(*s).String() }

// Type implements pflag.Value.
func (s *span) Type() string { return "duration" }

func checkNetwork(network string) error {
	if !slices.Contains(schemas.Networks(), schemas.Network(network)) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "unknown --network %q: use none or host", network)
	}
	return nil
}

// size is a flag's number of bytes.
type size int64

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	n, err := template.ParseSize(text)
	*s = size(n)
	return err
}

// String implements pflag.Value.
func (s *size) String() string { return template.FormatSize(int64(*s)) }

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }

// reserve is free space in the form of size, in which no reserve is one byte: 0 is the default.
type reserve int64

// Set implements pflag.Value.
func (r *reserve) Set(text string) error {
	n, err := template.ParseSize(text)
	*r = reserve(max(n, 1))
	return err
}

// String implements pflag.Value.
func (r *reserve) String() string {
	if *r == 0 {
		return ""
	}
	return template.FormatSize(int64(*r))
}

// Type implements pflag.Value.
func (r *reserve) Type() string { return "size" }

// documentLimits are the limits of the environment, for the template documents, and for workspaces of other templates; 0 where it has none.
// Errors: invalid_argument.
func (m *Main) documentLimits() (l schemas.TemplateLimits, err error) {
	const megabyte = 1_000_000
	var wrong [3]error
	l.WorkspaceBytes, wrong[0] = fromEnv(m, "MAX_WORKSPACE_SIZE_MB", 0, unitsOf(megabyte))
	l.WorkspaceFiles, wrong[1] = fromEnv(m, "MAX_TOTAL_FILES", 0, wholeNumber)
	l.FileBytes, wrong[2] = fromEnv(m, "MAX_FILE_SIZE_MB", 0, unitsOf(megabyte))
	return l, cmp.Or(wrong[:]...)
}

// flagError says what is wrong with the value of a flag, in place of the error of package strconv or time.
func flagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	f, why := wrong.GetFlag(), wrong.Unwrap()
	switch kind := f.Value.Type(); {
	case errors.Is(why, strconv.ErrRange):
		why = errors.New("the number is too large")
	case kind == "int" || kind == "int64" || kind == "uint64":
		why = errors.New("not a whole number")
	case kind == "float64":
		why = errors.New("not a number")
	case kind == "bool":
		why = errors.New("write true or false, after =, or leave it out")
	case kind == "duration" && !errors.Is(why, errNegative):
		why = errDuration
	}
	return fmt.Errorf("--%s is %q: %w", f.Name, wrong.GetValue(), why)
}
