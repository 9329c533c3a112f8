package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func tokenCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke tokens of the HTTP gateway",
		Long: `HTTP requests have a token in the header "Authorization: Bearer TOKEN". It is for the threads of one
tenant (--tenant) and has a scope: read sees what is there, exec runs commands and changes files
too, admin manages tokens too. Only a hash is stored. The token of the data folder is valid as admin
at the gateway of its "sluice up".`,
		Example: `  sluice token create --name ci --scope exec --expires 720h
  sluice token list
  sluice token revoke 5dqz3m7cyv2a`,
	}, tokenCreateCommand(g), tokenListCommand(g), tokenRevokeCommand(g))
}

func tokenCreateCommand(g *globals) *cobra.Command {
	var req client.TokenRequest
	var scope string
	var asJSON bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a token and print it, this once",
		Example: `  sluice token create --name ci --scope exec --expires 720h
  TOKEN=$(sluice token create --scope exec)`,
		Args: noArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, _ []string) error {
			req.Scope = schemas.Scope(scope)
			secret, info, err := client.NewTokens(c).Create(ctx, req)
			if err != nil {
				return err
			}
			if asJSON {
				return g.printJSON(struct {
					*schemas.Token
					Secret string `json:"token"`
				}{info, secret})
			}
			_, err = fmt.Fprintln(g.Stdout, secret)
			return err
		}),
	}
	f := c.Flags()
	f.StringVar(&req.Name, "name", "", "`NAME` that says what the token is for")
	f.StringVar(&scope, "scope", string(schemas.ScopeRead), "`SCOPE`: read, exec or admin")
	f.DurationVar(&req.Lifetime, "expires", 0, "time `DURATION` after which it ends; 0 for never")
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

func tokenListCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the tokens of the tenant",
		Long:  "List the tokens of the tenant, without their secrets. One that has expired is listed for a day.",
		Example: `  sluice token list
  sluice token list --json | jq -r '.[].id'`,
		Args: noArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := client.NewTokens(c).List(ctx)
			if err != nil {
				return err
			}
			return printResult(g.Main, asJSON, list, printTokens)
		}),
	}
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func printTokens(m *Main, list []schemas.Token) error {
	t := m.list("no tokens: `sluice token create` makes one", "ID", "NAME", "SCOPE", "CREATED", "EXPIRES")
	for _, k := range list {
		expires := "never"
		if !k.Expires.IsZero() {
			expires = k.Expires.Local().Format(time.DateTime)
		}
		t.row(k.ID, k.Name, string(k.Scope), k.Created.Local().Format(time.DateTime), expires)
	}
	return t.print()
}

func tokenRevokeCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "Delete a token: no gateway accepts it any more",
		Example: `  sluice token revoke 5dqz3m7cyv2a`,
		Args:    exactArgs(1, "the ID of one token"),
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			return client.NewTokens(c).Revoke(ctx, args[0])
		}),
	}
}
