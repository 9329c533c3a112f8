package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

func templateCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "template",
		Short: "List, show and check templates, the recipes of sessions",
		Long: `List, show and check templates, the recipes of sessions. With a server, the templates are those of
its workers. Without one, they are those of a worker on this machine: the built-in templates and
those of --templates. The built-in agents claude-code, codex, gemini-cli, aider and opencode are
among them once --agent-templates switches them on; "show" prints them always.`,
		Example: `  sluice template list
  sluice template show echo-agent > mine.yaml
  sluice template check mine.yaml && sluice reload`,
	}, templateListCommand(g), templateShowCommand(g), templateCheckCommand(g.Main))
}

func templateListCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List templates",
		Example: `  sluice template list
  sluice template list --json | jq -r '.[].name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := g.listTemplates(cmd.Context())
			if err != nil {
				return err
			}
			return printResult(g.Main, asJSON, list, printTemplates)
		},
	}
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func printTemplates(m *Main, list []*schemas.Template) error {
	out := m.list("the workers have no templates", "TEMPLATE…", "PROVIDER", "NETWORK", "AGENT…", "DESCRIPTION…").leaveOut("AGENT", "NETWORK", "PROVIDER")
	for _, t := range list {
		agent := ""
		if t.Agent != nil && len(t.Agent.Command) > 0 {
			agent = t.Agent.Command[0]
		}
		out.row(t.Name, cmp.Or(t.Provider, schemas.ProviderAuto), string(cmp.Or(t.Network, schemas.NetworkNone)), agent, t.Description)
	}
	return out.print()
}

func templateShowCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show NAME",
		Short:   "Print a template as a YAML file",
		Example: `  sluice template show echo-agent > mine.yaml`,
		Args:    exactArgs(1, "the NAME of one template"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := g.listTemplates(cmd.Context())
			if err != nil {
				return err
			}
			for _, t := range list {
				if t.Name == args[0] {
					return printResult(g.Main, asJSON, t, printTemplate)
				}
			}
			// It may become a template of the operator's own, with an image and a network of their choice.
			agents, err := template.Agents()
			if err != nil {
				return err
			}
			for _, t := range agents {
				if t.Name == args[0] {
					g.notice("template " + t.Name + " is switched off: --agent-templates " + t.Name + " of `sluice up` or `sluice worker` switches it on")
					return printResult(g.Main, asJSON, t, printTemplate)
				}
			}
			return schemas.Errorf(schemas.CodeNotFound, "template %q does not exist: `sluice template list` shows the templates", args[0])
		},
	}
	jsonFlag(c, &asJSON, "JSON instead of YAML")
	return c
}

func printTemplate(m *Main, t *schemas.Template) error {
	body, err := template.YAML(t)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(m.Stdout, printable(string(body)))
	return err
}

// checked is what `sluice template check --json` prints.
type checked struct {
	Templates []string `json:"templates"`
	Problems  []string `json:"problems"`
}

func templateCheckCommand(m *Main) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check FILE…",
		Short: "Check template files, without a server",
		Long: `Check template files, or all template files of a folder, and print each problem with its line. The
exit code is 1 if there is any problem. No server is needed.`,
		Example: `  sluice template check templates/ agents.yaml`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "there is nothing to check: name a FILE or a folder")
			}
			found, err := template.Check(args...)
			problems, bad := errors.AsType[template.Problems](err)
			if err != nil && !bad {
				return err
			}
			if asJSON {
				out := checked{[]string{}, []string{}}
				for _, p := range problems {
					out.Problems = append(out.Problems, oneLine(p.Error()))
				}
				for _, t := range found {
					out.Templates = append(out.Templates, t.Name)
				}
				if err := m.printJSON(out); err != nil || !bad {
					return err
				}
				return exitCode(1)
			}
			if bad {
				for _, p := range problems {
					fmt.Fprintln(m.Stderr, oneLine(p.Error()))
				}
				return exitCode(1)
			}
			for _, t := range found {
				fmt.Fprintln(m.Stdout, t.Name+": ok")
			}
			return nil
		},
	}
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// listTemplates lists those of the server's workers, or, without a server, those that a worker here would have. It starts no worker.
func (g *globals) listTemplates(ctx context.Context) (list []*schemas.Template, err error) {
	_, running := (&dataFolder{path: g.data}).readAddress()
	if g.nats != "" || running {
		err = g.with(ctx, hostOptions{}, func(ctx context.Context, c *client.Client) error {
			list, err = c.Templates(ctx)
			return err
		})
		if len(list) > 0 || err != nil {
			return list, err
		}
	}
	documents, err := g.documentLimits()
	if err != nil {
		return nil, err
	}
	s, err := template.New(template.Config{Dir: g.templates, Documents: documents, Agents: g.agents})
	if err != nil {
		return nil, err
	}
	return s.List(), nil
}
