package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Every command has a page with all sections, in macros that every reader of manual pages has.
func TestEveryCommandHasAManualPage(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	dir := filepath.Join(t.TempDir(), "pages")
	c.run("man", dir).check(t).exits(0).printsPart("pages written to " + dir)
	pages := 0
	every((&Main{Getenv: c.getenv}).rootCommand(), nil, func(cmd *cobra.Command, _ []string) {
		pages++
		body, err := os.ReadFile(filepath.Join(dir, pageName(cmd)+".1"))
		testkit.Must(t, err)
		page, at := string(body), 0
		for _, part := range []string{
			".TH ", ".SH NAME\n" + roff(pageName(cmd)) + ` \- `, ".SH SYNOPSIS\n.B sluice", ".SH DESCRIPTION\n", ".SH OPTIONS\n", ".SH EXAMPLES\n.nf\n", "sluice", ".SH EXIT STATUS\n", ".SH SEE ALSO\n",
		} {
			i := strings.Index(page[at:], part)
			if i < 0 {
				t.Fatalf("page of %s has no %q after %q", cmd.CommandPath(), part, page[:at])
			}
			at += i + len(part)
		}
		for line := range strings.Lines(page) {
			macro, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			known := slices.Contains([]string{".TH", ".SH", ".B", ".BR", ".TP", ".PP", ".nf", ".fi", ".nh", ".ad"}, macro)
			if !known && (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") || strings.TrimSpace(line) == "" && !strings.Contains(cmd.Example, "\n\n")) {
				t.Errorf("page of %s: line %q is no text, and no macro of man(7)", cmd.CommandPath(), line)
			}
		}
		ownFlags(cmd).VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(page, roff("--"+f.Name)) {
				t.Errorf("page of %s has no --%s", cmd.CommandPath(), f.Name)
			}
		})
	})
	files, err := os.ReadDir(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "pages", len(files), pages)
	testkit.Equal(t, "text", roffLines(".a\\b\n'c -d…"), "\\&.a\\eb\n\\&'c \\-d\\[u2026]\n")
	c.run("man").wantError(t, schemas.CodeInvalidArgument, "one DIR")
	c.run("man", "/dev/null/x").wantError(t, schemas.CodeInvalidArgument, "/dev/null")
}
