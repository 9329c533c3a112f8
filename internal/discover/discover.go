package discover

import (
	"cmp"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// Settings are what the environment says about the server and its user.
type Settings struct {
	// URL, Creds, Token and CA are the server's URL, a credentials file, the server's token and a certificate file of the authorities of
	// the server; empty where the environment has none.
	URL, Creds, Token, CA string
	// Domain is the JetStream domain of the streams; empty for the server's own.
	Domain string
	// Data is the data folder.
	Data string
	// Cell and Tenant have their defaults.
	Cell, Tenant string
}

// Environment reads the settings from the environment.
func Environment(getenv func(string) string) Settings {
	return Settings{
		URL: getenv("SLUICE_NATS_URL"), Creds: getenv("SLUICE_NATS_CREDS"), Token: getenv("SLUICE_NATS_TOKEN"), CA: getenv("SLUICE_NATS_CA"),
		Domain: getenv("SLUICE_JS_DOMAIN"), Data: dataFolder(getenv),
		Cell: cmp.Or(getenv("SLUICE_CELL"), schemas.DefaultCell), Tenant: cmp.Or(getenv("SLUICE_TENANT"), schemas.DefaultTenant),
	}
}

// Server is how a program that needs a worker connects to its server. Errors: invalid_argument for credentials without a URL, unavailable
// where no process with a server and a worker holds the data folder.
func (s Settings) Server() (events.Options, error) {
	if err := CheckCreds(s.URL, s.Creds); err != nil {
		return events.Options{}, err
	}
	o := events.Options{URL: s.URL, CredsFile: s.Creds, CAFile: s.CA, Token: s.Token, Domain: s.Domain}
	if s.URL == "" {
		a, ok := ReadAddress(s.Data)
		if !ok || a.Reads || !a.HasServer() {
			return events.Options{}, schemas.Errorf(schemas.CodeUnavailable,
				"no server is found: set SLUICE_NATS_URL, or start `sluice up` (data folder %s)", s.Data)
		}
		o = a.Options(s.Data, s.Token, true)
	}
	o.Cell = s.Cell
	return o, nil
}

// CheckCreds refuses credentials that no connection would use. Errors: invalid_argument.
func CheckCreds(url, creds string) error {
	if url != "" || creds == "" {
		return nil
	}
	return schemas.Errorf(schemas.CodeInvalidArgument,
		"--creds (SLUICE_NATS_CREDS) has no server: name it with --nats URL, or leave --creds out; the server of the data folder takes the token in it")
}

// dataFolder is the default data folder on this system.
func dataFolder(getenv func(string) string) string {
	if d := getenv("SLUICE_DATA"); d != "" {
		return d
	}
	if d := getenv("XDG_DATA_HOME"); d != "" && filepath.IsAbs(d) {
		return filepath.Join(d, "sluice")
	}
	home := cmp.Or(getenv("HOME"), os.TempDir())
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "sluice")
	}
	return filepath.Join(home, ".local", "share", "sluice")
}

// Address says how to connect to the process that holds a data folder.
type Address struct {
	// URL is its NATS server's; empty when the server does not listen.
	URL string `json:"url,omitempty"`
	// Socket is a unix socket to its NATS server; empty when commands use the URL, or when it has no server.
	Socket string `json:"socket,omitempty"`
	// PID is the process.
	PID int `json:"pid"`
	// Reads reports that it runs no worker: it gives the folder up for a process that does.
	Reads bool `json:"reads,omitempty"`
}

// The files of a data folder.
const (
	AddressFile = "server.json"
	TokenFile   = "token"
)

// ReadSuffix is added to the path of the socket for programs that only read.
const ReadSuffix = "-r"

// ReadAddress reads the address in a data folder; ok is false where there is none.
func ReadAddress(folder string) (a Address, ok bool) {
	body, err := os.ReadFile(filepath.Join(folder, AddressFile))
	if err != nil || json.Unmarshal(body, &a) != nil {
		return Address{}, false
	}
	return a, a.PID > 0
}

// ReadToken reads the token in a data folder; empty where there is none, and the server then rejects the connection.
func ReadToken(folder string) string {
	body, _ := os.ReadFile(filepath.Join(folder, TokenFile))
	return strings.TrimSpace(string(body))
}

// HasServer reports whether the process has a server: that of `sluice worker` is elsewhere.
func (a Address) HasServer() bool { return a.URL != "" || a.Socket != "" }

// Dial connects to the server, which waits for the connections of programs that need its worker.
func (a Address) Dial(worker bool) (net.Conn, error) {
	switch {
	case a.Socket != "" && worker:
		return net.DialTimeout("unix", a.Socket, time.Second)
	case a.Socket != "":
		return net.DialTimeout("unix", a.Socket+ReadSuffix, time.Second)
	}
	return net.DialTimeout("tcp", strings.TrimPrefix(a.URL, "nats://"), time.Second)
}

// Options are how to connect to the server of a data folder. The token is the one in the folder where it is empty.
func (a Address) Options(folder, token string, worker bool) events.Options {
	o := events.Options{URL: a.URL, TokenFrom: func() string { return cmp.Or(token, ReadToken(folder)) }}
	if a.Socket != "" {
		o.URL, o.Dial = "nats://sluice", func() (net.Conn, error) { return a.Dial(worker) }
	}
	return o
}
