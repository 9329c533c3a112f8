package main

import (
	"context"
	"errors"
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
	limits := schemas.DefaultTokenLimits()
	limits.Burst = 0
	var scope string
	var asJSON bool
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a token and print it, this once",
		Example: `  sluice token create --name ci --scope exec --expires 720h
  sluice token create --name agents --scope exec --rate 20 --max-sessions 10 --max-processes 50
  TOKEN=$(sluice token create --scope exec)`,
		Args: noArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, _ []string) error {
			req.Scope, req.Limits = schemas.Scope(scope), &limits
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
	f.Float64Var(&limits.Rate, "rate", limits.Rate, "most requests per second `N` at each gateway; 0 for no limit")
	f.Int64Var(&limits.Burst, "burst", 0, "most requests `N` at once, before --rate applies; 0 for twice the rate")
	f.Int64Var(&limits.Concurrent, "max-concurrent", limits.Concurrent, "most requests and streams `N` at a time at each gateway; 0 for no limit")
	f.Int64Var(&limits.BytesPerHour, "max-bytes", limits.BytesPerHour, "most bytes `N` up and down in an hour at each gateway; 0 for no limit")
	f.Int64Var(&limits.Sessions, "max-sessions", limits.Sessions, "most sessions `N` of the tenant for the token to begin one; 0 for no limit")
	f.Int64Var(&limits.Processes, "max-processes", limits.Processes, "most processes `N` of the tenant for the token to begin one; 0 for no limit")
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}

// limitCell is a limit in a table.
func limitCell(limited bool, text string) string {
	if !limited {
		return "none"
	}
	return text
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
	t := m.list("no tokens: `sluice token create` makes one", "ID", "NAME…", "SCOPE", "CREATED", "EXPIRES", "RATE", "AT ONCE", "BYTES/H", "SESSIONS",
		"PROCESSES").leaveOut("CREATED", "BYTES/H", "PROCESSES", "SESSIONS", "AT ONCE", "RATE", "EXPIRES")
	for _, k := range list {
		expires, l := "never", &k.Limits
		if !k.Expires.IsZero() {
			expires = k.Expires.Local().Format(time.DateTime)
		}
		t.row(k.ID, k.Name, string(k.Scope), k.Created.Local().Format(time.DateTime), expires,
			limitCell(l.Rate > 0, fmt.Sprintf("%g/s", l.Rate)), limitCell(l.Concurrent > 0, fmt.Sprint(l.Concurrent)),
			limitCell(l.BytesPerHour > 0, byteSize(l.BytesPerHour)), limitCell(l.Sessions > 0, fmt.Sprint(l.Sessions)),
			limitCell(l.Processes > 0, fmt.Sprint(l.Processes)))
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
			err := client.NewTokens(c).Revoke(ctx, args[0])
			if errors.Is(err, schemas.ErrNotFound) {
				return schemas.Errorf(schemas.CodeNotFound, "%w: `sluice token list` shows the tokens", err)
			}
			return err
		}),
	}
}
