package sandboxtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Connections to servers inside.
var dialTests = []test{
	{"Servers", func(t *testing.T, f *fixture) {
		f.installServer(t)
		v4, v6 := freePort(t), freePort(t)
		socket := filepath.Join(f.Home(), "echo.sock")
		server := f.serve(t, "--echo", at("127.0.0.1", v4), "--echo", at("::1", v6), "--echo", socket, at("127.0.0.1", freePort(t)))
		f.wantEcho(t, f.dial(t, 0, socket))
		f.wantEcho(t, f.dial(t, v6, ""))
		conns := make([]net.Conn, 30)
		for i := range conns {
			conns[i] = f.dial(t, v4, "")
		}
		for _, c := range conns {
			f.wantEcho(t, c)
		}
		none := freePort(t)
		for _, err := range []error{f.refused(none, ""), f.refused(0, "/tmp/no.sock")} {
			testkit.WantCode(t, err, schemas.CodeNotFound)
		}
		testkit.WantCode(t, f.refused(0, "/tmp/"+strings.Repeat("x", 300)), schemas.CodeUnavailable)
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err := f.Sandbox.(sandbox.Dialer).Dial(ctx, none, "")
		testkit.WantCode(t, err, schemas.CodeDeadlineExceeded)
		conn := f.dial(t, v4, "")
		server.kill(t)
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes from a server that was killed", n)
		}
	}},
	{"EndsWithTheSandbox", func(t *testing.T, f *fixture) {
		f.installServer(t)
		port := freePort(t)
		f.serve(t, "--echo", at("127.0.0.1", port), at("127.0.0.1", freePort(t)))
		conn := f.dial(t, port, "")
		testkit.Must(t, f.Terminate(f.ctx, 0))
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes from a sandbox that has ended", n)
		}
		testkit.WantCode(t, f.refused(port, ""), schemas.CodeUnavailable)
	}},
}

// freePort has the type of Dial's: a provider that does not isolate has the machine's network.
func freePort(t *testing.T) uint16 { return uint16(testkit.FreePort(t)) }

func at(host string, port uint16) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// refused is the error of a Dial that must fail.
func (f *fixture) refused(port uint16, path string) error {
	conn, err := f.Sandbox.(sandbox.Dialer).Dial(f.ctx, port, path)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func (f *fixture) dial(t *testing.T, port uint16, path string) net.Conn {
	t.Helper()
	conn, err := f.Sandbox.(sandbox.Dialer).Dial(f.ctx, port, path)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	deadline, _ := f.ctx.Deadline()
	testkit.Must(t, conn.SetDeadline(deadline))
	return conn
}

// installServer puts the test server into the workspace. It takes seconds: choose ports after it, as others on the machine may take them.
func (f *fixture) installServer(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(testkit.Build(t, "internal/testkit/testserver"))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(f.workspace, "testserver"), program, 0o755)) //nolint:gosec // the sandbox's user runs it
}

// serve runs the test server until it listens.
func (f *fixture) serve(t *testing.T, args ...string) *testProcess {
	t.Helper()
	p := f.start(t, sandbox.Command{Path: "./testserver", Args: args})
	p.readUntil(t, "listening")
	return p
}

// wantEcho sends more than the buffers hold, closes for writing, and wants it back.
func (f *fixture) wantEcho(t *testing.T, conn net.Conn) {
	t.Helper()
	sent := pseudoRandom(1 << 20)
	go func() {
		_, _ = conn.Write(sent) // what is missing shows below
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	got, err := io.ReadAll(conn)
	testkit.Must(t, err)
	if !bytes.Equal(got, sent) {
		t.Errorf("got %d bytes back, not the %d that were sent", len(got), len(sent))
	}
}
