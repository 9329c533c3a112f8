package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/events/accounts"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

// tenantFlags are the flags of the commands about tenants.
type tenantFlags struct {
	*globals
	dir    string
	asJSON bool
}

func (f *tenantFlags) addTo(c *cobra.Command, what string) *cobra.Command {
	c.Flags().StringVar(&f.dir, "dir", f.Getenv("SLUICE_TENANTS"), "`FOLDER` of accounts.conf and the credentials; default: tenants in the data folder (SLUICE_TENANTS)")
	jsonFlag(c, &f.asJSON, what)
	return c
}

func (f *tenantFlags) folder() (*accounts.Folder, error) {
	dir, err := filepath.Abs(cmp.Or(f.dir, filepath.Join(f.data, "tenants")))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--dir %s: %w", f.dir, err)
	}
	return accounts.NewFolder(dir), nil
}

func tenantCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "tenant",
		Short: "Create, list and delete the tenants of a NATS server, and rotate their credentials",
		Long: `Give each tenant accounts of its own on a NATS server. The commands write accounts.conf, which the
configuration of the server includes, and a file with credentials for each role: client, gateway and
worker. They need no server. Tenants see nothing of each other, and each has workers of its own. See
docs/tenants.md.`,
		Example: `  sluice tenant create acme --dir /etc/nats/tenants
  sluice tenant list --dir /etc/nats/tenants
  sluice tenant rotate acme --role client --dir /etc/nats/tenants`,
	}, tenantCreateCommand(g), tenantListCommand(g), tenantRotateCommand(g), tenantDeleteCommand(g))
}

func tenantCreateCommand(g *globals) *cobra.Command {
	f := &tenantFlags{globals: g}
	t := accounts.Tenant{MaxStorage: accounts.DefaultStorage}
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Add a tenant to accounts.conf, and write its credentials",
		Long: `Add a tenant to accounts.conf, and write its credentials into files that only you can read. The
server knows the tenant once it has reloaded its configuration: "nats-server --signal reload".`,
		Example: `  sluice tenant create acme --dir /etc/nats/tenants --max-storage 8GiB`,
		Args:    exactArgs(1, "the NAME of one tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for flag, n := range map[string]int64{"max-storage": t.MaxStorage, "max-connections": int64(t.MaxConnections)} {
				if cmd.Flags().Changed(flag) && n == 0 {
					return schemas.Errorf(schemas.CodeInvalidArgument, "--%s is 0: leave it out for the default", flag)
				}
			}
			folder, err := f.folder()
			if err != nil {
				return err
			}
			t.Name, t.Cell = args[0], g.cell
			made, err := folder.Create(t)
			if err != nil {
				return err
			}
			return f.printKeys(folder, made, accounts.Roles())
		},
	}
	c.Flags().Var((*size)(&t.MaxStorage), "max-storage", "most `SIZE` of the tenant's streams together, replicas included")
	c.Flags().IntVar(&t.MaxConnections, "max-connections", accounts.DefaultConnections, "most connections `N` of its workers, and of its clients; a program has two")
	return f.addTo(c, "the tenant as JSON")
}

func tenantRotateCommand(g *globals) *cobra.Command {
	f := &tenantFlags{globals: g}
	var names []string
	c := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Replace the credentials of a tenant",
		Long: `Replace the credentials of a tenant, of all roles unless --role names some. The server refuses the
old ones, and closes their connections, once it has reloaded its configuration. Then restart the
workers and gateways of the tenant: what runs in the sandboxes of a worker survives that.`,
		Example: `  sluice tenant rotate acme --role client --dir /etc/nats/tenants`,
		Args:    exactArgs(1, "the NAME of one tenant"),
		RunE: func(_ *cobra.Command, args []string) error {
			folder, err := f.folder()
			if err != nil {
				return err
			}
			roles := accounts.Roles()
			if len(names) > 0 {
				roles = nil
			}
			for _, n := range names {
				roles = append(roles, accounts.Role(n))
			}
			t, err := folder.Rotate(args[0], roles...)
			if err != nil {
				return err
			}
			return f.printKeys(folder, t, roles)
		},
	}
	c.Flags().StringSliceVar(&names, "role", nil, "`ROLE` whose credentials are replaced: client, gateway or worker; default: all")
	return f.addTo(c, "the tenant as JSON")
}

func tenantDeleteCommand(g *globals) *cobra.Command {
	f := &tenantFlags{globals: g}
	c := &cobra.Command{
		Use:   "delete NAME",
		Short: "Remove a tenant from accounts.conf, and its credentials",
		Long: `Remove a tenant from accounts.conf, and its credentials. The server closes its connections, and
refuses it, once it has reloaded its configuration. Stop its workers before that. Its streams stay
on the server's disk, and are there again when a tenant of that name is created.`,
		Example: `  sluice tenant delete acme --dir /etc/nats/tenants`,
		Args:    exactArgs(1, "the NAME of one tenant"),
		RunE: func(_ *cobra.Command, args []string) error {
			folder, err := f.folder()
			if err == nil {
				err = folder.Delete(args[0])
			}
			if err != nil {
				return err
			}
			if f.asJSON {
				return f.printJSON(map[string]string{"name": args[0], "config": folder.Config()})
			}
			_, err = fmt.Fprintf(f.Stdout, "Tenant %s is out of %s: reload the NATS server. Its streams stay on the server's disk.\n", args[0], folder.Config())
			return err
		},
	}
	return f.addTo(c, "the tenant as JSON")
}

// printKeys prints where the credentials are, and never what is in them.
func (f *tenantFlags) printKeys(folder *accounts.Folder, t *accounts.Tenant, roles []accounts.Role) error {
	files := make(map[accounts.Role]string)
	for _, r := range roles {
		files[r] = folder.Creds(t.Name, r)
	}
	if f.asJSON {
		return f.printJSON(struct {
			*accounts.Tenant
			Config string                   `json:"config"`
			Creds  map[accounts.Role]string `json:"creds"`
		}{t, folder.Config(), files})
	}
	table := f.list("no credentials", "ROLE", "CREDENTIALS")
	for _, r := range roles {
		table.row(string(r), files[r])
	}
	if err := table.print(); err != nil {
		return err
	}
	all, err := folder.List()
	if err != nil {
		return err
	}
	reserved := int64(0)
	for i := range all {
		reserved += all[i].MaxStorage
	}
	_, err = fmt.Fprintf(f.Stdout, `
Include %s in the configuration of the NATS server, and reload it.
The tenants reserve %s: max_file_store must not be less, or the server does not start.
Then use --tenant %s --creds FILE.
`, folder.Config(), template.FormatSize(reserved), t.Name)
	return err
}

func tenantListCommand(g *globals) *cobra.Command {
	f := &tenantFlags{globals: g}
	c := &cobra.Command{
		Use:   "list",
		Short: "List the tenants in accounts.conf and their limits",
		Example: `  sluice tenant list --dir /etc/nats/tenants
  sluice tenant list --json | jq 'map(.max_storage) | add'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			folder, err := f.folder()
			if err != nil {
				return err
			}
			list, err := folder.List()
			if err != nil {
				return err
			}
			return printResult(f.Main, f.asJSON, list, printTenants)
		},
	}
	return f.addTo(c, "one JSON array")
}

func printTenants(m *Main, list []accounts.Tenant) error {
	t := m.list("no tenants: `sluice tenant create` makes one", "NAME", "CELL", "STORAGE", "CONNECTIONS", "CREATED", "ROTATED").leaveOut("CONNECTIONS", "ROTATED", "CREATED")
	for i := range list {
		k := &list[i]
		t.row(k.Name, k.Cell, template.FormatSize(k.MaxStorage), fmt.Sprint(k.MaxConnections), k.Created.Local().Format(time.DateTime), k.Rotated.Local().Format(time.DateTime))
	}
	return t.print()
}
