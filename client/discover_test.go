package client

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: the SDK finds server, token, cell and tenant as the command line does.
func TestServerIsFoundAsTheCommandLineFindsIt(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	find := func(env map[string]string) (*settings, error) {
		o, err := findServer(func(name string) string { return env[name] })
		if err != nil {
			return nil, err
		}
		return newSettings("", []Option{o})
	}
	folder := map[string]string{"SLUICE_DATA": dir}
	_, err := find(folder)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	for _, address := range []string{`{"pid":7}`, `{"socket":"/run/x.sock","pid":7,"reads":true}`} { // of a worker, and of a command that reads
		write("server.json", address)
		_, err = find(folder)
		testkit.WantCode(t, err, schemas.CodeUnavailable)
	}
	_, err = find(map[string]string{"SLUICE_DATA": dir, "SLUICE_NATS_CREDS": "c"})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)

	write("server.json", `{"url":"nats://127.0.0.1:4333","pid":7}`)
	write("token", "of the folder\n")
	home := filepath.Join(dir, "home")
	testkit.Must(t, os.MkdirAll(home, 0o700))
	testkit.Must(t, os.Symlink(dir, filepath.Join(home, "sluice")))
	for what, tt := range map[string]struct {
		env                                 map[string]string
		url, creds, ca, token, cell, tenant string
	}{
		"data folder":         {folder, "nats://127.0.0.1:4333", "", "", "of the folder", "local", "default"},
		"default data folder": {map[string]string{"XDG_DATA_HOME": home}, "nats://127.0.0.1:4333", "", "", "of the folder", "local", "default"},
		"token":               {map[string]string{"SLUICE_DATA": dir, "SLUICE_NATS_TOKEN": "mine"}, "nats://127.0.0.1:4333", "", "", "mine", "local", "default"},
		"server": {
			map[string]string{
				"SLUICE_DATA": dir, "SLUICE_NATS_URL": "nats://x", "SLUICE_NATS_CREDS": "c", "SLUICE_NATS_CA": "ca.pem", "SLUICE_NATS_TOKEN": "t",
				"SLUICE_CELL": "a", "SLUICE_TENANT": "b",
			},
			"nats://x", "c", "ca.pem", "t", "a", "b",
		},
	} {
		s, err := find(tt.env)
		testkit.Must(t, err)
		if s.nats.TokenFrom != nil {
			s.nats.Token = s.nats.TokenFrom()
		}
		got := [6]string{s.nats.URL, s.nats.CredsFile, s.nats.CAFile, s.nats.Token, s.nats.Cell, s.tenant}
		testkit.Equal(t, what, got, [6]string{tt.url, tt.creds, tt.ca, tt.token, tt.cell, tt.tenant})
	}

	write("server.json", `{"socket":"/run/x.sock","pid":7}`)
	s, err := find(folder)
	testkit.Must(t, err)
	testkit.Equal(t, "a server behind a socket is dialed", s.nats.Dial != nil, true)
}
