package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/local"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// temporary makes the folder of temporary files a short one of the test, and returns it.
func temporary(t *testing.T) string {
	t.Helper()
	dir := testkit.ShortDir(t)
	t.Setenv("TMPDIR", dir)
	return dir
}

// remote starts a server that listens and a worker, as `sluice up` does, and returns a client that is connected to its address.
func remote(t *testing.T) *client.Client {
	t.Helper()
	dir := testkit.ShortDir(t)
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0", Token: "secret"})
	testkit.Must(t, err)
	t.Cleanup(server.Close)
	conn, err := events.Connect(events.Options{InProcess: server, Token: "secret"})
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	run := filepath.Join(dir, "run")
	testkit.Must(t, os.Mkdir(run, 0o700))
	worker := node.New(node.Config{
		Worker: "w1", Topology: events.Topology{Partitions: 1, Room: server.Room() / 10 * 9}, Provider: "local", Allowed: []string{"local"},
		RunFolder: run, Workspaces: filepath.Join(dir, "workspaces"),
	}, conn)
	stop, err := membership.Background(testkit.Context(t), worker.Run)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, stop()) })
	c, err := client.Connect(server.URL(), client.WithToken("secret"))
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// program is a program on the SDK. It returns what it saw.
func program(ctx context.Context, c *client.Client) (seen []string, err error) {
	boxes := c.Sandboxes(client.SessionRequest{Tags: map[string]string{"job": "7"}})
	box, err := boxes.Run(ctx, client.SessionRequest{Thread: "t"})
	if err != nil {
		return nil, err
	}
	if _, err := box.Files().WriteFile(ctx, "in", []byte("one two\n")); err != nil {
		return nil, err
	}
	r, err := box.Exec(ctx, client.Request{Command: "sh", Args: []string{"-c", "wc -w <in; echo oops >&2; exit 3"}})
	if err != nil {
		return nil, err
	}
	p, err := box.StartProcess(ctx, client.Request{Command: "cat", StdinOpen: true})
	if err != nil {
		return nil, err
	}
	if err := p.WriteStdin(ctx, []byte("typed")); err != nil {
		return nil, err
	}
	if err := p.CloseStdin(ctx); err != nil {
		return nil, err
	}
	client.Wait(ctx, 0, p)
	typed, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	_, missing := box.Files().ReadFile(ctx, "none")
	list, err := boxes.List(ctx, client.SessionQuery{})
	if err != nil {
		return nil, err
	}
	err = boxes.Close()
	_, after := box.Exec(ctx, client.Request{Command: "true"})
	return []string{
		strings.TrimSpace(r.Stdout), r.Stderr, fmt.Sprint(r.ExitCode), typed.Stdout, fmt.Sprint(len(list)),
		string(schemas.CodeOf(missing)), string(schemas.CodeOf(after)),
	}, err
}

func TestLocalAndRemoteAreOneAPI(t *testing.T) {
	temporary(t)
	ctx := testkit.Context(t)
	inProcess, err := local.Open(ctx, local.Config{Provider: schemas.ProviderLocal})
	testkit.Must(t, err)
	defer inProcess.Close()
	want := []string{"2", "oops\n", "3", "typed", "1", "not_found", "session_expired"}
	for name, c := range map[string]*client.Client{"local": inProcess, "remote": remote(t)} {
		got, err := program(ctx, c)
		testkit.Must(t, err)
		testkit.Equal(t, name, got, want)
	}
}

func TestDefaultIsolates(t *testing.T) {
	temporary(t)
	ctx := testkit.Context(t)
	c, err := local.Open(ctx, local.Config{})
	if schemas.CodeOf(err) == schemas.CodeUnavailable {
		testkit.Missing(t, "a provider that isolates ("+err.Error()+")", "sluice doctor")
	}
	testkit.Must(t, err)
	defer c.Close()
	info, _, err := c.CreateSession(ctx, client.SessionRequest{Thread: "t", Start: true})
	testkit.Must(t, err)
	s, err := info.Info(ctx)
	testkit.Must(t, err)
	if s.Provider == schemas.ProviderLocal {
		t.Errorf("provider = %s, want one that isolates", s.Provider)
	}
	_, err = program(ctx, c)
	testkit.Must(t, err)
}

func TestCloseLeavesNothing(t *testing.T) {
	kept := testkit.ShortDir(t)
	dir, ctx := temporary(t), testkit.Context(t)
	c, err := local.Open(ctx, local.Config{Provider: schemas.ProviderLocal, Workspaces: kept})
	testkit.Must(t, err)
	_, err = c.Files("t").WriteFile(ctx, "f", []byte("x"))
	testkit.Must(t, err)
	x, err := c.ExecStream(ctx, client.Request{Thread: "t", Command: "sh", Args: []string{"-c", "echo $$; exec sleep 300"}})
	testkit.Must(t, err)
	pid := 0
	for e, err := range x.Events(ctx) {
		testkit.Must(t, err)
		if e.Chunk != nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(e.Chunk.Data)))
			testkit.Must(t, err)
			break
		}
	}
	x.Close()
	c.Close()
	c.Close()
	if testkit.Alive(pid) {
		t.Errorf("process %d still runs", pid)
	}
	left, err := os.ReadDir(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "temporary files", len(left), 0)
	content, err := os.ReadFile(filepath.Join(kept, schemas.DefaultTenant, "t", "f"))
	testkit.Must(t, err)
	testkit.Equal(t, "a file of the kept workspaces", string(content), "x")
}

func TestOpenReportsWhyItCannotStart(t *testing.T) {
	dir := temporary(t)
	for what, k := range map[string]struct {
		cfg  local.Config
		want schemas.Code
	}{
		"an unknown provider": {local.Config{Provider: "none"}, schemas.CodeInvalidArgument},
		"a negative limit":    {local.Config{Provider: schemas.ProviderLocal, Limits: sandbox.Limits{PIDs: -1}}, schemas.CodeInvalidArgument},
		"an unknown network":  {local.Config{Provider: schemas.ProviderLocal, Network: "none such"}, schemas.CodeInvalidArgument},
		"no such templates":   {local.Config{Provider: schemas.ProviderLocal, Templates: filepath.Join(dir, "none")}, schemas.CodeNotFound},
		"an invalid tenant":   {local.Config{Provider: schemas.ProviderLocal}, schemas.CodeInvalidArgument},
	} {
		var opts []client.Option
		if what == "an invalid tenant" {
			opts = append(opts, client.WithTenant("no id"))
		}
		_, err := local.Open(testkit.Context(t), k.cfg, opts...)
		if got := schemas.CodeOf(err); got != k.want {
			t.Errorf("%s: code = %q, want %q (error: %v)", what, got, k.want, err)
		}
	}
	ended, cancel := context.WithCancel(testkit.Context(t))
	cancel()
	if _, err := local.Open(ended, local.Config{Provider: schemas.ProviderLocal}); err == nil {
		t.Error("a canceled start: no error")
	}
	left, err := os.ReadDir(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "temporary files", len(left), 0)
}
