package accounts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/accounts"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// After a rotation the server refuses the old credentials and closes their connections, and those of others go on.
func TestRotatedCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	old, err := os.ReadFile(n.folder.Creds("a", accounts.Client))
	testkit.Must(t, err)
	x, gateway := n.attacker("a", accounts.Client), n.attacker("a", accounts.Gateway)
	closed := x.StatusChanged(nats.CLOSED)
	made, err := n.folder.Rotate("a", accounts.Client)
	testkit.Must(t, err)
	if kept := n.connect("b", accounts.Client); kept.Closed() {
		t.Error("the connection of another tenant is closed")
	}
	n.reload()
	select {
	case <-closed:
	case <-testkit.Context(t).Done():
		t.Error("a connection with the old credentials goes on")
	}
	testkit.Equal(t, "the gateway is connected", gateway.IsConnected(), true)
	file := filepath.Join(t.TempDir(), "old.nk")
	testkit.Must(t, os.WriteFile(file, old, 0o600))
	_, err = events.Connect(events.Options{URL: n.server.ClientURL(), CredsFile: file, Tenant: "a"})
	testkit.WantCode(t, err, schemas.CodeUnauthenticated)
	n.connect("a", accounts.Client)
	n.connect("b", accounts.Client)
	list, err := n.folder.List()
	testkit.Must(t, err)
	testkit.Equal(t, "keys", list[0].Keys, made.Keys)
}

// After the reload a deleted tenant is refused, its connections are closed, and those of others go on.
func TestDeletedTenantIsRefused(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	file := filepath.Join(t.TempDir(), "kept.nk")
	kept, err := os.ReadFile(n.folder.Creds("a", accounts.Client))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(file, kept, 0o600))
	x, other := n.attacker("a", accounts.Client), n.attacker("b", accounts.Client)
	closed := x.StatusChanged(nats.RECONNECTING)
	testkit.WantCode(t, n.folder.Delete("A"), schemas.CodeNotFound)
	testkit.Must(t, n.folder.Delete("a"))
	testkit.WantCode(t, n.folder.Delete("a"), schemas.CodeNotFound)
	for _, r := range accounts.Roles() {
		if _, err := os.Stat(n.folder.Creds("a", r)); !os.IsNotExist(err) {
			t.Errorf("stat of the credentials of %s: %v, want not exist", r, err)
		}
	}
	n.reload()
	select {
	case <-closed:
	case <-testkit.Context(t).Done():
		t.Error("a connection of the tenant goes on")
	}
	_, err = events.Connect(events.Options{URL: n.server.ClientURL(), CredsFile: file, Tenant: "a"})
	testkit.WantCode(t, err, schemas.CodeUnauthenticated)
	testkit.Equal(t, "the other tenant is connected", other.IsConnected(), true)
	n.connect("b", accounts.Client)
}

// A tenant that is created while the server runs has its streams after a reload, and its limit of storage.
func TestNewTenantWorksAfterAReload(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	_, err := n.folder.Create(accounts.Tenant{Name: "123", MaxStorage: accounts.MinStorage}) // a number, for NATS's parser
	testkit.Must(t, err)
	n.reload()
	n.fill("123", "x")
	c := n.connect("123", accounts.Worker)
	testkit.Must(t, c.Ensure(testkit.Context(t), events.Topology{}))
	if got := c.Worker().Topology().StoreBytes(); got > accounts.MinStorage {
		t.Errorf("the streams may take %d bytes, want at most %d", got, accounts.MinStorage)
	}
	testkit.WantCode(t, n.connect("123", accounts.Worker).Ensure(testkit.Context(t), events.Topology{EventBytes: 1 << 30}), schemas.CodeLimitExceeded)
}

// The server reads its configuration again while clients subscribe. Then their tenant's copies of events and output still reach them.
func TestReloadWhileClientsSubscribe(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	subjects := events.NewSubjects(schemas.DefaultCell)
	var copies []*nats.Subscription
	follower := n.attacker("b", accounts.Client)
	for _, subject := range []string{subjects.Feed("b", "t1", "p1"), subjects.Tail("b", "t1", "p1")} {
		sub, err := follower.SubscribeSync(subject)
		testkit.Must(t, err)
		copies = append(copies, sub)
	}
	testkit.Must(t, follower.Flush())
	reloaded := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		a := n.attacker("b", accounts.Client)
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-reloaded:
					return
				default:
				}
				sub, err := a.SubscribeSync(fmt.Sprint(events.InboxOf("b"), ".x", i))
				if err == nil {
					err = errors.Join(sub.Unsubscribe(), a.Flush())
				}
				if err != nil {
					t.Errorf("subscribe during a reload: %v", err)
					return
				}
			}
		})
	}
	for range 20 {
		n.reload()
	}
	close(reloaded)
	group.Wait()
	n.fill("b", "text")
	for _, sub := range copies {
		m, err := sub.NextMsgWithContext(testkit.Context(t))
		testkit.Must(t, err)
		testkit.Equal(t, "copy on "+sub.Subject, string(m.Data), "text")
	}
}

// An anonymous client is refused, and so is one with a key of its own.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	for name, o := range map[string]nats.Option{"nothing": nats.Name("x"), "a token": nats.Token("x"), "a password": nats.UserInfo("SLUICE_a", "x")} {
		if c, err := nats.Connect(n.server.ClientURL(), o); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("with %s: error = %v, want %v", name, err, nats.ErrAuthorization)
			c.Close()
		}
	}
	stranger := accounts.NewFolder(t.TempDir())
	_, err := stranger.Create(accounts.Tenant{Name: "a"})
	testkit.Must(t, err)
	_, err = events.Connect(events.Options{URL: n.server.ClientURL(), CredsFile: stranger.Creds("a", accounts.Worker)})
	testkit.WantCode(t, err, schemas.CodeUnauthenticated)
	file := filepath.Join(t.TempDir(), "x.nk")
	testkit.Must(t, os.WriteFile(file, []byte("no key"), 0o600))
	_, err = events.Connect(events.Options{URL: n.server.ClientURL(), CredsFile: file})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

func TestFolderKeepsSecretsApart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tenants")
	f := accounts.NewFolder(dir)
	list, err := f.List()
	testkit.Must(t, err)
	testkit.Equal(t, "tenants", len(list), 0)
	var group sync.WaitGroup
	const many = 8
	for i := range many {
		group.Go(func() {
			if _, err := f.Create(accounts.Tenant{Name: fmt.Sprint("t-", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	list, err = f.List()
	testkit.Must(t, err)
	testkit.Equal(t, "tenants", len(list), many)
	o, err := server.ProcessConfigFile(f.Config())
	testkit.Must(t, err)
	testkit.Equal(t, "accounts", len(o.Accounts), 2*many)
	testkit.Equal(t, "users", len(o.Nkeys), 3*many)

	testkit.Must(t, filepath.Walk(dir, func(file string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			if err == nil && filepath.Base(file) == "creds" {
				testkit.Equal(t, "mode of creds", info.Mode().Perm(), os.FileMode(0o700))
			}
			return err
		}
		body, err := os.ReadFile(file)
		hasSeed := strings.Contains("\n"+string(body), "\nSU")
		if secret := filepath.Base(filepath.Dir(file)) == "creds"; secret != hasSeed || (secret && info.Mode().Perm() != 0o600) {
			t.Errorf("%s has mode %v, and a seed: %v", file, info.Mode(), hasSeed)
		}
		return err
	}))
	for _, bad := range []accounts.Tenant{{}, {Name: "a b"}, {Name: "a.b"}, {Name: "../x"}, {Name: `a"}`}, {Name: "x", Cell: "*"}, {Name: "x", MaxStorage: 1}, {Name: "x", MaxConnections: -1}} {
		_, err := f.Create(bad)
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	}
	for _, name := range []string{"t-1", "T-1"} {
		_, err = f.Create(accounts.Tenant{Name: name})
		testkit.WantCode(t, err, schemas.CodeConflict)
	}
	_, err = f.Rotate("T-1")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	_, err = f.Rotate("t-1", "admin")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "tenants.json"), []byte("{"), 0o600))
	_, err = f.Create(accounts.Tenant{Name: "late"})
	testkit.WantCode(t, err, schemas.CodeInternal)
}
