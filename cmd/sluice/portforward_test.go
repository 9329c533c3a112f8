package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestPortsOfPortForward(t *testing.T) {
	for spec, want := range map[string]string{"8000": "8000", "8000:0": "0", "5432:15432": "15432", "0": "", "x": "", "1:": "", "1:2:3": "", "70000": "", "1:70000": "", "-1": ""} {
		_, local, err := parsePorts(spec)
		testkit.Equal(t, "local port of "+spec, local, want)
		testkit.Equal(t, spec+" is refused", err != nil, want == "")
	}
}

// Processes 4: a port of a service is reached from this machine; one that nothing listens on ends the connection with a typed error.
func TestPortForward(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	port := strconv.Itoa(testkit.FreePort(t))
	address := net.JoinHostPort("127.0.0.1", port)
	server, socket := testkit.Build(t, "internal/testkit/testserver"), filepath.Join(testkit.ShortDir(t), "s")
	c.run("service", "start", "--provider", "local", "--health-port", port, "t1", "web", "--", server, "--echo", address, socket).check(t).exits(0)

	forward := c.spawn("port-forward", "t1", port+":0", "1:0")
	local := func(remote string) net.Conn {
		at, rest, _ := strings.Cut(forward.line(), " ")
		testkit.Equal(t, "line", rest, "-> port "+remote+" of thread t1")
		conn, err := net.Dial("tcp", at)
		testkit.Must(t, err)
		testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Timeout)))
		return conn
	}
	conn, none := local(port), local("1")
	defer none.Close()
	defer conn.Close()
	_, err := io.WriteString(conn, "hello")
	testkit.Must(t, err)
	testkit.Must(t, conn.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(conn)
	testkit.Must(t, err)
	testkit.Equal(t, "echo", string(got), "hello")
	if n, err := none.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes from a port on which nothing listens", n)
	}
	testkit.Must(t, forward.cmd.Process.Signal(os.Interrupt))
	forward.wait()
	if text := forward.stderr.String(); !strings.Contains(text, "not_found: ") || !strings.Contains(text, "nothing listens on port 1") {
		t.Errorf("standard error is %q", text)
	}
	c.run("port-forward", "t1").wantError(t, schemas.CodeInvalidArgument, "port")
	c.run("port-forward", "t1", "x").wantError(t, schemas.CodeInvalidArgument, "PORT")
}
