package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	nats "github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-dev/sluice/events/accounts"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// operator has the folder of tenants of a NATS server.
type operator struct {
	*cli
	server *nats.Server
}

// newOperator creates tenants, and starts a NATS server with them.
func newOperator(t *testing.T, tenants ...string) *operator {
	t.Helper()
	o := &operator{cli: newCLI(t)}
	for _, name := range tenants {
		o.run("tenant", "create", name, "--max-storage", "1GiB").check(t).exits(0).printsPart(o.creds(name, accounts.Worker))
	}
	conf := filepath.Join(o.data, "nats.conf")
	testkit.Must(t, os.WriteFile(conf, fmt.Appendf(nil, "jetstream: enabled\ninclude tenants/%s\n", accounts.ConfigFile), 0o600))
	config, err := nats.ProcessConfigFile(conf)
	testkit.Must(t, err)
	o.server = natsServer(t, config)
	return o
}

func (o *operator) creds(tenant string, role accounts.Role) string {
	return accounts.NewFolder(filepath.Join(o.data, "tenants")).Creds(tenant, role)
}

// as returns a cli with the credentials of a role of a tenant.
func (o *operator) as(tenant string, role accounts.Role) *cli {
	o.t.Helper()
	c := newCLI(o.t)
	c.env["SLUICE_NATS_URL"], c.env["SLUICE_NATS_CREDS"], c.env["SLUICE_TENANT"] = o.server.ClientURL(), o.creds(tenant, role), tenant
	return c
}

// useTenant does with the credentials of a client what clients do, and returns a process.
func useTenant(t *testing.T, c *cli, mine string) (process string) {
	t.Helper()
	c.exec("--", "sh", "-c", "echo "+mine+"; echo two >&2").check(t).exits(0).prints(mine + "\n")
	c.runFrom(c.input(mine), execArgs("--", "cat")...).check(t).exits(0).prints(mine)
	process = c.exec("--json", "--", "echo", mine).result(t).Process
	c.run("logs", "--thread", "t1", process).check(t).exits(0).prints(mine + "\n")
	c.run("events").check(t).exits(0).printsPart("process.exited")
	c.run("process", "start", "--provider", "local", "--thread", "t1", "--id", "bg", "--", "sleep", "1000").check(t).exits(0)
	c.run("ps").check(t).exits(0).printsPart("sleep 1000")
	c.run("process", "kill", "--thread", "t1", "bg").check(t).exits(0)
	c.run("process", "wait", "--thread", "t1", "bg")
	c.run("process", "list", "--all", "--thread", "t1").check(t).exits(0).printsPart("killed")
	c.runFrom(c.input(mine), "file", "put", "-", "t1:f").check(t).exits(0)
	c.run("file", "cat", "t1:f").check(t).exits(0).prints(mine)
	c.run("file", "ls", "t1:").check(t).exits(0).printsPart("f")
	c.run("message", "--thread", "t2", "--template", "talk", mine).check(t).exits(0).printsPart(mine)
	c.run("messages", "--thread", "t2").check(t).exits(0).printsPart(mine)
	c.run("service", "start", "--provider", "local", "t3", "web", "--", "sleep", "1000").check(t).exits(0)
	c.run("service", "list").check(t).exits(0).printsPart("web")
	c.run("service", "stop", "t3", "web").check(t).exits(0)
	c.run("session", "stop", "-t", "t3", "--grace", "0s").check(t).exits(0)
	for _, args := range [][]string{{"session", "list"}, {"session", "get", "t1"}, {"sandbox", "list"}, {"workspace", "list"}, {"template", "list"}, {"limits"}, {"token", "list"}} {
		c.run(args...).check(t).exits(0)
	}
	c.run("status").check(t).exits(0).printsPart("alive")
	c.run("token", "create").wantError(t, schemas.CodePermissionDenied, "token")
	return process
}

// Two tenants on one NATS server, each with a worker: a client does all that clients do, and neither reads nor changes what the other has.
func TestTenantsAreIsolated(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "a", "b")
	clients, processes := make(map[string]*cli), make(map[string]string)
	for _, tenant := range []string{"a", "b"} {
		w := o.as(tenant, accounts.Worker)
		w.env["SLUICE_TEMPLATES"], _ = w.templates("name: talk\nagent: {command: [cat]}\n")
		w.worker()
		clients[tenant] = o.as(tenant, accounts.Client)
		processes[tenant] = useTenant(t, clients[tenant], "data-of-"+tenant)
	}
	a, b := clients["a"], clients["b"]
	for _, args := range [][]string{{"session", "list"}, {"process", "list", "--all"}, {"ps"}, {"events"}, {"messages", "--thread", "t2"}, {"workspace", "list"}, {"status"}} {
		a.run(args...).check(t).exits(0).omits("data-of-b")
	}
	a.run("logs", processes["b"]).wantError(t, schemas.CodeNotFound)
	a.env["SLUICE_TENANT"] = "b" // with the credentials of a
	for _, args := range [][]string{
		execArgs("--", "touch", "x"), {"ps"}, {"process", "list", "--all"}, {"logs", processes["b"]}, {"logs", "--thread", "t1", processes["b"]}, {"events"}, {"status"},
		{"session", "list"}, {"session", "get", "t1"}, {"session", "stop", "t1"}, {"sandbox", "list"}, {"file", "cat", "t1:f"}, {"file", "ls", "t1:"}, {"messages", "--thread", "t2"},
		{"message", "--thread", "t2", "hi"}, {"service", "list"}, {"service", "stop", "t3", "web"}, {"template", "list"}, {"workspace", "rm", "t3"}, {"token", "list"}, {"token", "create"},
	} {
		a.run(args...).wantError(t, schemas.CodePermissionDenied, "NATS refuses")
	}
	a.runFrom(a.input("forged"), "file", "put", "-", "t1:f").wantError(t, schemas.CodePermissionDenied)
	b.run("file", "cat", "t1:f").check(t).exits(0).prints("data-of-b")
	b.run("file", "ls", "t1:").check(t).exits(0).omits("x\n")

	// A gateway of each tenant, with a token of one.
	users := make(map[string]*webUser)
	for _, tenant := range []string{"a", "b"} {
		g := o.as(tenant, accounts.Gateway)
		line := g.spawn("gateway", "--http", "127.0.0.1:0").line()
		url, ok := strings.CutPrefix(strings.TrimSpace(line), "gateway is up: ")
		testkit.Equal(t, "the gateway is up", ok, true)
		users[tenant] = newWebUser(t, url, nil)
	}
	token := strings.TrimSpace(o.as("a", accounts.Gateway).run("token", "create", "--scope", "exec").check(t).exits(0).got.stdout)
	users["a"].wantExecute(token, "t4")
	status, _ := users["b"].post(token, "/create_session", `{}`)
	testkit.Equal(t, "status at the gateway of the other tenant", status, http.StatusUnauthorized)
	a.env["SLUICE_TENANT"] = "a"
	a.run("file", "cat", "t1:f").check(t).exits(0).prints("data-of-a")
}

func TestTenantCommands(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("tenant", "list").check(t).exits(0).prints("")
	c.run("tenant", "list", "--json").check(t).exits(0).prints("[]\n")
	dir := filepath.Join(c.data, "elsewhere")
	printed := ""
	run := func(args ...string) outcome {
		got := c.run(append(append([]string{"tenant"}, args...), "--dir", dir)...)
		printed += got.stdout + got.stderr
		return got
	}
	run("create", "acme", "--max-storage", "2GiB", "--max-connections", "7").check(t).exits(0).printsPart(filepath.Join(dir, accounts.ConfigFile))
	made := decode[accounts.Tenant](t, run("create", "zeta", "--json").check(t).exits(0).got.stdout)
	testkit.Equal(t, "storage", made.MaxStorage, int64(accounts.DefaultStorage))
	run("list").check(t).exits(0).printsPart("acme").printsPart("2GiB")
	run("rotate", "acme", "--role", "client").check(t).exits(0).printsPart("acme.client.nk").printsPart("6GiB").omits("acme.worker.nk")
	rotated := decode[accounts.Tenant](t, run("rotate", "zeta", "--role", "worker,client", "--json").check(t).exits(0).got.stdout)
	testkit.Equal(t, "the gateway's key is kept", rotated.Keys[accounts.Gateway], made.Keys[accounts.Gateway])
	testkit.Equal(t, "the worker's key is kept", rotated.Keys[accounts.Worker] == made.Keys[accounts.Worker], false)
	list := decode[[]accounts.Tenant](t, run("list", "--json").check(t).exits(0).got.stdout)
	testkit.Equal(t, "tenants", len(list), 2)
	testkit.Equal(t, "connections", list[0].MaxConnections, 7)
	run("create", "acme").wantError(t, schemas.CodeConflict, "acme", "rotate")
	run("create", "../x").wantError(t, schemas.CodeInvalidArgument, "../x")
	run("create", "x", "--max-storage", "1MiB").wantError(t, schemas.CodeInvalidArgument, "max_storage")
	run("rotate", "none").wantError(t, schemas.CodeNotFound, "none")
	run("rotate", "acme", "--role", "admin").wantError(t, schemas.CodeInvalidArgument, "admin", "worker")
	seeds, err := filepath.Glob(filepath.Join(dir, "creds", "*"))
	testkit.Must(t, err)
	testkit.Equal(t, "credentials", len(seeds), 6)
	for _, file := range seeds {
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		_, seed, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		if len(seed) < 50 || strings.Contains(printed, seed) {
			t.Errorf("%s has the seed %q, which must not be printed", file, seed)
		}
	}
}
