package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func portForwardCommand(g *globals) *cobra.Command {
	address := "127.0.0.1"
	return addressFlag(&cobra.Command{
		Use:   "port-forward [flags] THREAD PORT[:LOCAL]…",
		Short: "Reach ports in a thread's sandbox from this machine",
		Long: `Reach ports in the sandbox of a thread from this machine, until you stop it. The sandbox needs no
network: its worker connects from inside it. LOCAL is the port here, by default the same one; 0 is
any free one. A connection that fails, such as to a port without a listener, is reported here.`,
		Example: `  sluice port-forward t1 8000
  sluice port-forward t1 5432:15432 8000:0`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return schemas.Errorf(schemas.CodeInvalidArgument,
					"`%s` takes THREAD and ports, such as t1 8000: see `%[1]s --help`", c.CommandPath())
			}
			return schemas.CheckID("thread", args[0])
		},
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			group, ctx := errgroup.WithContext(ctx)
			for _, spec := range args[1:] {
				remote, local, err := parsePorts(spec)
				if err != nil {
					return err
				}
				l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(address, local))
				if err != nil {
					return schemas.Errorf(schemas.CodeUnavailable,
						"%w: choose another port of this machine, such as %d:0, or another --address", err, remote)
				}
				defer l.Close()
				fmt.Fprintf(g.Stdout, "%s -> port %d of thread %s\n", l.Addr(), remote, args[0])
				group.Go(func() error {
					return c.ForwardAll(ctx, l, args[0], remote, func(err error) { g.printError(err) })
				})
			}
			if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}),
	}, &address)
}

func addressFlag(c *cobra.Command, address *string) *cobra.Command {
	c.Flags().StringVar(address, "address", *address, "`ADDRESS` of this machine to listen on")
	return c
}

// parsePorts reads PORT[:LOCAL].
func parsePorts(spec string) (remote int, local string, err error) {
	port, local, both := strings.Cut(spec, ":")
	if !both {
		local = port
	}
	remote, err = strconv.Atoi(port)
	here, localErr := strconv.Atoi(local)
	if err != nil || localErr != nil || remote < 1 || remote > 65535 || here < 0 || here > 65535 {
		return 0, "", schemas.Errorf(schemas.CodeInvalidArgument, "%.40q is no PORT or PORT:LOCAL: write 8000 or 8000:18000", spec)
	}
	return remote, local, nil
}
