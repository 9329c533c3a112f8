package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
	fmt.Fprintln(w, or(c.Long, c.Short+"."))
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
		fmt.Fprintln(w, "\nGlobal flags (--nats, --data, --tenant …): see `"+c.Root().Name()+" --help`.")
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
