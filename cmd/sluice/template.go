package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

func (m *Main) templateCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "template",
		Short: "List, show and check templates: recipes for sessions",
		Long: `List, show and check templates: recipes for sessions. Those of the running workers are shown; where none runs here, those that one
would have: the built-in ones, and those of --templates.`,
		Example: `  sluice template list
  sluice template show echo-agent > mine.yaml
  sluice template check mine.yaml && kill -HUP $(pgrep -x sluice)`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	c.AddCommand(m.templateListCommand(g), m.templateShowCommand(g), m.templateCheckCommand())
	return c
}

func (m *Main) templateListCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List templates",
		Example: `  sluice template list
  sluice template list --json | jq -r '.[].name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := m.templates(cmd.Context(), g)
			if err != nil {
				return err
			}
			if asJSON {
				return m.printJSON(list)
			}
			w := tabwriter.NewWriter(m.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "TEMPLATE\tPROVIDER\tNETWORK\tAGENT\tDESCRIPTION")
			for _, t := range list {
				agent := "-"
				if t.Agent != nil && len(t.Agent.Command) > 0 {
					agent = t.Agent.Command[0]
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", oneLine(t.Name), oneLine(or(t.Provider, "auto")), oneLine(or(string(t.Network), string(schemas.NetworkNone))), oneLine(agent), oneLine(t.Description))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return c
}

func (m *Main) templateShowCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show NAME",
		Short:   "Print a template as a file of yours could have it",
		Example: `  sluice template show echo-agent > mine.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "name one template: `sluice template list` shows what there is")
			}
			list, err := m.templates(cmd.Context(), g)
			if err != nil {
				return err
			}
			for _, t := range list {
				if t.Name != args[0] {
					continue
				}
				if asJSON {
					return m.printJSON(t)
				}
				body, err := template.YAML(t)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(m.Stdout, printable(string(body)))
				return err
			}
			return schemas.Errorf(schemas.CodeNotFound, "there is no template %q: `sluice template list` shows what there is", args[0])
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of YAML")
	return c
}

func (m *Main) templateCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE…",
		Short: "Say what is wrong with template files, line by line; no server is needed",
		Long: `Say what is wrong with template files, or with those of folders, line by line. The exit code is 1 where something is. No server is
needed, and none is asked.`,
		Example: `  sluice template check templates/ agents.yaml`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "name a FILE to check, or a folder")
			}
			found, err := template.Check(args...)
			if problems, ok := errors.AsType[template.Problems](err); ok {
				for _, p := range problems {
					fmt.Fprintln(m.Stderr, oneLine(p.Error()))
				}
				return exitCode(1)
			}
			if err != nil {
				return err
			}
			for _, t := range found {
				fmt.Fprintln(m.Stdout, t.Name+": ok")
			}
			return nil
		},
	}
}

// templates are those of the workers that can be reached, or those that a worker started here would have: none is started for
// this.
func (m *Main) templates(ctx context.Context, g *globals) (list []*schemas.Template, err error) {
	_, running := (&folder{path: g.data}).readAddress()
	if g.nats == "" && !running {
		s, err := template.New(g.templates)
		if err != nil {
			return nil, err
		}
		return s.List(), nil
	}
	err = m.with(ctx, g, func(ctx context.Context, c *client.Client) error {
		list, err = c.Templates(ctx)
		return err
	})
	return list, err
}
