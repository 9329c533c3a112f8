package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/schemas"
)

func manCommand(m *Main) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages, one of each command",
		Long: `Write the manual pages, one of each command, into a folder: sluice.1, sluice-exec.1 and so on. They
are made from the commands of this program.`,
		Example: `  sluice man /usr/local/share/man/man1
  sluice man pages && man -l pages/sluice-exec.1`,
		Args: exactArgs(1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return schemas.Errorf(schemas.CodeInvalidArgument, "make the folder of the pages: %w", err)
			}
			n, err := writePages(c.Root(), args[0])
			if err != nil {
				return schemas.Errorf(schemas.CodeInvalidArgument, "write the pages: %w: choose another folder", err)
			}
			_, err = fmt.Fprintf(m.Stdout, "%s written to %s\n", count(n, "page"), printable(args[0]))
			return err
		},
	}
}

// writePages writes the page of a command, and those of its commands.
func writePages(c *cobra.Command, dir string) (n int, err error) {
	if err := os.WriteFile(filepath.Join(dir, pageName(c)+".1"), manPage(c), 0o644); err != nil {
		return 0, err
	}
	n = 1
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		more, err := writePages(sub, dir)
		if n += more; err != nil {
			return n, err
		}
	}
	return n, nil
}

// pageName is the name of a command's page: sluice-process-list.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manExit is the section EXIT STATUS of commands that describe no codes of their own.
const manExit = `0 on success, or the exit code of the command that ran; 124 it timed out; 125 Sluice failed, and standard error says why; 126 the command is not executable; 127 it was not found; 128+n it ended by signal n.`

// manPage is the manual page of a command, in the macros of man(7).
func manPage(c *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"sluice %s\" \"Sluice\"\n.nh\n.ad l\n", strings.ToUpper(roff(pageName(c))), roff(version))
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(pageName(c)), roff(c.Short))
	section("SYNOPSIS")
	usage := c.UseLine()
	if c.HasAvailableSubCommands() {
		usage = c.CommandPath() + " COMMAND [flags]"
	}
	fmt.Fprintf(&b, ".B %s\n", roff(usage))
	section("DESCRIPTION")
	for i, paragraph := range strings.Split(cmp.Or(c.Long, c.Short+"."), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(roffLines(paragraph))
	}
	if c.HasAvailableSubCommands() {
		section("COMMANDS")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(sub)), roff(sub.Short))
			}
		}
	}
	section("OPTIONS")
	flags, others := c.Flags(), "The global flags are in\n.BR sluice (1).\n"
	if c.HasParent() {
		flags = ownFlags(c)
	} else {
		others = ""
	}
	flags.VisitAll(func(f *pflag.Flag) { b.WriteString(manFlag(f)) })
	if others != "" {
		b.WriteString(".PP\n" + others)
	}
	section("EXAMPLES")
	fmt.Fprintf(&b, ".nf\n%s.fi\n", roffLines(c.Example))
	section("EXIT STATUS")
	if isSync(c) {
		b.WriteString(roffLines(syncExitHelp))
	} else {
		b.WriteString(roffLines(manExit))
	}
	section("SEE ALSO")
	if p := c.Parent(); p != nil {
		fmt.Fprintf(&b, ".BR %s (1)\n", roff(pageName(p)))
	} else {
		b.WriteString(".BR sluice\\-exec (1)\n")
	}
	return b.Bytes()
}

// manFlag is the paragraph of a flag.
func manFlag(f *pflag.Flag) string {
	if f.Hidden || f.Name == "help" {
		return ""
	}
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		name += " " + value
	}
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
	default:
		if !strings.HasPrefix(f.DefValue, "/") { // a path of this machine
			usage += " (default " + f.DefValue + ")"
		}
	}
	return fmt.Sprintf(".TP\n.B %s\n%s\n", roff(name), roff(usage))
}

// roff escapes text on one line.
func roff(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case i == 0 && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r)) // it would be a macro
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\n':
			b.WriteByte(' ')
		case r > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// roffLines escapes lines of text.
func roffLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(roff(strings.TrimRight(line, "\n")) + "\n")
	}
	return b.String()
}
