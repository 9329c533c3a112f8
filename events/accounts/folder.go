package accounts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// Role is what a user of a tenant does.
type Role string

// The roles.
const (
	// Client sends commands and reads.
	Client Role = "client"
	// Gateway does the same, and creates and revokes tokens of HTTP.
	Gateway Role = "gateway"
	// Worker may do everything in the account of its tenant's streams.
	Worker Role = "worker"
)

// Roles returns all roles.
func Roles() []Role { return []Role{Client, Gateway, Worker} }

// Defaults of a tenant.
const (
	DefaultStorage     = 4 << 30
	DefaultConnections = 1000
	// MinStorage is what the streams need at least, in bytes.
	MinStorage = 64 << 20
)

// Tenant is a tenant in the configuration of a NATS server.
type Tenant struct {
	// Name and Cell are valid ids.
	Name string `json:"name"`
	Cell string `json:"cell"`
	// MaxStorage is the most bytes of all its streams, replicas included. Default [DefaultStorage].
	MaxStorage int64 `json:"max_storage"`
	// MaxConnections is the most connections of its workers, and of its clients. Default [DefaultConnections]. A program has two.
	MaxConnections int `json:"max_connections"`
	// Created and Rotated are when the tenant and its newest keys were made.
	Created time.Time `json:"created"`
	Rotated time.Time `json:"rotated"`
	// Keys are the public keys of its users.
	Keys map[Role]string `json:"keys"`
}

// Validate checks the tenant. Errors: invalid_argument.
func (t *Tenant) Validate() error {
	if err := errors.Join(schemas.CheckID("tenant", t.Name), schemas.CheckID("cell", t.Cell)); err != nil {
		return err
	}
	if t.MaxStorage < MinStorage {
		return schemas.Errorf(schemas.CodeInvalidArgument, "max_storage is %d bytes: the streams need at least %d", t.MaxStorage, MinStorage)
	}
	if t.MaxConnections < 1 || t.MaxConnections > 1<<30 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "max_connections is %d: it must be 1 to %d", t.MaxConnections, 1<<30)
	}
	return nil
}

// The files of a folder.
const (
	// ConfigFile is the file that the server's configuration includes.
	ConfigFile = "accounts.conf"
	tenantFile = "tenants.json"
	lockFile   = ".lock"
	credsDir   = "creds"
)

// Folder is a folder with the tenants of a NATS server. Commands that change it take turns.
type Folder struct{ path string }

// NewFolder returns the folder at a path, which Create makes when it is missing.
func NewFolder(path string) *Folder { return &Folder{path} }

// Config is the path of the file that the server's configuration includes.
func (f *Folder) Config() string { return filepath.Join(f.path, ConfigFile) }

// Creds is the path of the credentials of a tenant's user, which only the owner of the folder can read.
func (f *Folder) Creds(tenant string, role Role) string {
	return filepath.Join(f.path, credsDir, tenant+"."+string(role)+".nk")
}

// List returns the tenants, by name. Errors: unavailable, internal for a file that is damaged.
func (f *Folder) List() ([]Tenant, error) {
	tenants := []Tenant{}
	body, err := os.ReadFile(filepath.Join(f.path, tenantFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tenants, nil
	case err != nil:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "read the tenants: %w", err)
	}
	if err := json.Unmarshal(body, &tenants); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "%s is damaged (%w): restore it from a backup", filepath.Join(f.path, tenantFile), err)
	}
	return tenants, nil
}

// Create adds a tenant, with keys for each role. Zero fields have their defaults. Errors: invalid_argument, conflict for a tenant that
// exists, unavailable.
func (f *Folder) Create(t Tenant) (*Tenant, error) {
	t.Cell, t.MaxStorage, t.MaxConnections = cmp.Or(t.Cell, schemas.DefaultCell), cmp.Or(t.MaxStorage, DefaultStorage), cmp.Or(t.MaxConnections, DefaultConnections)
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return f.change(t.Name, Roles(), func(tenants []Tenant, at int) ([]Tenant, error) {
		if at >= 0 {
			return nil, schemas.Errorf(schemas.CodeConflict, "tenant %s exists: use another name, or `sluice tenant rotate %[1]s` for new credentials", tenants[at].Name)
		}
		t.Created, t.Keys = time.Now().UTC().Truncate(time.Second), make(map[Role]string)
		return append(tenants, t), nil
	})
}

// Rotate makes new keys for roles of a tenant; none means all. The server refuses the old ones once it has reloaded its configuration. Errors:
// invalid_argument, not_found, unavailable.
func (f *Folder) Rotate(tenant string, roles ...Role) (*Tenant, error) {
	for _, r := range roles {
		if !slices.Contains(Roles(), r) {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "unknown role %q: use client, gateway or worker", string(r))
		}
	}
	if len(roles) == 0 {
		roles = Roles()
	}
	return f.change(tenant, roles, func(tenants []Tenant, at int) ([]Tenant, error) {
		if at < 0 || tenants[at].Name != tenant {
			return nil, f.missing(tenant)
		}
		return tenants, nil
	})
}

// Delete removes a tenant and its credentials. The server closes its connections, and refuses them, once it has reloaded its configuration; the
// streams stay on the server's disk. When it fails midway, Delete again. Errors: not_found, unavailable.
func (f *Folder) Delete(tenant string) error {
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	tenants, err := f.List()
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(tenants), func(t Tenant) bool { return t.Name == tenant })
	if len(rest) == len(tenants) {
		return f.missing(tenant)
	}
	for _, role := range Roles() {
		if err := os.Remove(f.Creds(tenant, role)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return schemas.Errorf(schemas.CodeUnavailable, "remove the credentials of tenant %s: %w", tenant, err)
		}
	}
	return f.store(rest)
}

func (f *Folder) missing(tenant string) error {
	return schemas.Errorf(schemas.CodeNotFound, "tenant %q does not exist in %s: `sluice tenant list` shows those that do", tenant, f.path)
}

// change changes the tenants, and gives one of them new keys. The seeds are in place before the keys: when it fails midway, Rotate repairs
// it.
func (f *Folder) change(name string, roles []Role, edit func(tenants []Tenant, at int) ([]Tenant, error)) (*Tenant, error) {
	unlock, err := f.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	tenants, err := f.List()
	if err != nil {
		return nil, err
	}
	// The server names folders by accounts, also on a disk where upper and lower case are the same.
	find := func() int {
		return slices.IndexFunc(tenants, func(t Tenant) bool { return strings.EqualFold(t.Name, name) })
	}
	if tenants, err = edit(tenants, find()); err != nil {
		return nil, err
	}
	t := &tenants[find()]
	t.Rotated = time.Now().UTC().Truncate(time.Second)
	for _, role := range roles {
		if t.Keys[role], err = f.newKey(name, role); err != nil {
			return nil, err
		}
	}
	changed := *t
	slices.SortFunc(tenants, func(a, b Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return &changed, f.store(tenants)
}

// store writes both files of the tenants.
func (f *Folder) store(tenants []Tenant) error {
	body, err := json.MarshalIndent(tenants, "", "  ")
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode the tenants: %w", err)
	}
	// The server reads accounts.conf as another user. tenants.json goes first: the other file is made from it each time.
	if err := f.write(tenantFile, append(body, '\n'), 0o644, nil); err != nil {
		return err
	}
	return f.write(ConfigFile, []byte(render(tenants)), 0o644, func(file string) error {
		_, err := server.ProcessConfigFile(file)
		return err
	})
}

// lock makes the folder when it is missing, and waits until no other process changes it.
func (f *Folder) lock() (unlock func(), err error) {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "create the folder of tenants: %w: choose another one with --dir", err)
	}
	if err := os.MkdirAll(filepath.Join(f.path, credsDir), 0o700); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "create the folder of credentials: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(f.path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "lock the tenants: %w", err)
	}
	unlock = func() { _ = file.Close() } // which unlocks it
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		unlock()
		return nil, schemas.Errorf(schemas.CodeUnavailable, "lock the tenants: %w", err)
	}
	return unlock, nil
}

// newKey makes the key of a user, stores its seed, and returns its public half.
func (f *Folder) newKey(tenant string, role Role) (public string, err error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return "", schemas.Errorf(schemas.CodeInternal, "make a key: %w", err)
	}
	defer key.Wipe()
	if public, err = key.PublicKey(); err != nil {
		return "", schemas.Errorf(schemas.CodeInternal, "make a key: %w", err)
	}
	seed, err := key.Seed()
	if err != nil {
		return "", schemas.Errorf(schemas.CodeInternal, "make a key: %w", err)
	}
	text := fmt.Sprintf("# Seed of the nkey of a user of NATS: tenant %s, role %s. Keep it secret.\n%s\n", tenant, role, seed)
	return public, f.write(filepath.Join(credsDir, filepath.Base(f.Creds(tenant, role))), []byte(text), 0o600, nil)
}

// write replaces a file of the folder once check, unless it is nil, has accepted it.
func (f *Folder) write(name string, body []byte, mode fs.FileMode, check func(file string) error) (err error) {
	path := filepath.Join(f.path, name)
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err == nil {
		defer func() { _ = os.Remove(file.Name()) }() // it has moved, unless there is an error
		_, err = file.Write(body)
		err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	}
	if err == nil && check != nil {
		if err := check(file.Name()); err != nil {
			return schemas.Errorf(schemas.CodeInternal, "the NATS server would refuse %s: %w", name, err)
		}
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "write %s: %w", path, err)
	}
	return nil
}
