package main

import (
	"context"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway/mcp"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/schemas"
)

func mcpCommand(g *globals) *cobra.Command {
	var (
		cfg       mcp.Config
		anyThread bool
		verbose   bool
	)
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an agent the tools of a thread, by the Model Context Protocol",
		Long: `Serve an agent the tools of a thread, by the Model Context Protocol on standard input and output:
run commands, start, follow and stop processes, read, write, search and edit files, store
and restore the workspace. The agent starts this program itself; docs/mcp.md has the configuration
of many.

Standard output has messages of the protocol alone; notices and logs go to standard error. It ends
with its standard input, or at Ctrl+C; the commands that it runs then are killed. Processes in the
background go on in a "sluice up". Without one, mcp starts what it needs in its own process, and
they end with it.`,
		Example: `  sluice mcp                                     # in the thread "default"
  sluice mcp --thread project-1 --template python
  sluice mcp --any-thread                        # each call names its thread
  claude mcp add sluice -- sluice mcp            # have Claude Code start it`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if anyThread && cmd.Flags().Changed("thread") {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--any-thread has each call name its thread: leave out --thread")
			}
			if anyThread {
				cfg.Thread = ""
			} else if err := schemas.CheckID("thread", cfg.Thread); err != nil {
				return err
			}
			req := client.Request{Provider: cfg.Provider, Image: cfg.Image}
			if err := g.checkProvider(cmd.Context(), &req); err != nil {
				return err
			}
			cfg.Provider, cfg.Version = req.Provider, version
			if verbose {
				cfg.Log = zerolog.New(g.Stderr).With().Timestamp().Logger()
			}
			if warning := node.Warning(req.Provider); g.nats == "" && warning != "" {
				g.notice("warning: " + warning)
			}
			return g.with(cmd.Context(), hostOptions{worker: true, image: g.Getenv("SLUICE_IMAGE")}, func(ctx context.Context, c *client.Client) error {
				cfg.Client = c
				return mcp.Run(ctx, cfg, g.Stdin, g.Stdout)
			})
		},
	}
	f := c.Flags()
	threadFlag(c, &cfg.Thread, defaultThread, "`THREAD` whose sandbox and workspace the agent uses")
	f.BoolVar(&anyThread, "any-thread", false, "have each call name its thread, in place of --thread")
	f.StringVar(&cfg.Template, "template", "", "`TEMPLATE` of the session that a thread without one gets; default: the worker's")
	providerFlag(c, &cfg.Provider, g.Getenv("SLUICE_PROVIDER"), "; default: the worker's (SLUICE_PROVIDER)")
	imageFlag(c, &cfg.Image)
	f.BoolVar(&cfg.ReadOnly, "read-only", false, "leave out every tool that changes something")
	f.BoolVarP(&verbose, "verbose", "v", false, "log each call to standard error")
	return c
}
