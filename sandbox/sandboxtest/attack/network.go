package attack

import (
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Network connections out of the sandbox.
var networkAttacks = []attack{
	{"Routes", "the only interface is the loopback, and no route leads out", func(t *testing.T, f *fixture) {
		r := f.sh(t, "cat /proc/net/route /proc/net/dev")
		for line := range strings.Lines(r.Stdout) {
			if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name != "lo" {
				t.Errorf("interface %s exists, want only lo", name)
			}
		}
		if n := strings.Count(r.Stdout, "\n"); n > 4 {
			t.Errorf("routes and interfaces = %s, want only lo", r.Stdout)
		}
		f.wantRefused(t, "route")
	}},
	{"Egress", "nothing sent by TCP or UDP arrives at any address of the host, and no address outside is reachable", func(t *testing.T, f *fixture) {
		var listeners []*listener
		var targets []string
		for _, address := range hostAddresses(t) {
			l := listen(t, address)
			listeners = append(listeners, l)
			targets = append(targets, "tcp!"+l.tcp.Addr().String(), "udp!"+l.udp.LocalAddr().String())
		}
		for name, what := range f.probe(t, "reach", targets...) {
			if strings.HasPrefix(name, "tcp") && what == done {
				t.Errorf("connect to the host at %s succeeded, want an error", name)
			}
		}
		for _, l := range listeners {
			l.wantNothingReceived(t)
		}
		// The metadata service of clouds, a name server, multicast and broadcast addresses.
		out := []string{"tcp!169.254.169.254:80", "tcp!1.1.1.1:53", "udp!1.1.1.1:53", "udp!224.0.0.1:5353", "udp!255.255.255.255:67", "tcp![2606:4700:4700::1111]:53", "udp![ff02::1]:5353"}
		f.wantRefused(t, "reach", out...)
		f.wantRefused(t, "ping", "169.254.169.254", "1.1.1.1", "224.0.0.1")
	}},
	{"AbstractSockets", "abstract sockets of the host are not reachable", func(t *testing.T, f *fixture) {
		name := "@sluice-attack-" + rand.Text()
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", name)
		testkit.Must(t, err)
		defer l.Close()
		// A datagram socket may have the same name: the kernel distinguishes the two by type.
		d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Logf("listen for datagrams: %v", err)
		} else {
			defer func() { testkit.Must(t, d.Close()) }()
		}
		if r := f.sh(t, "cat /proc/net/unix"); strings.Contains(r.Stdout, name) {
			t.Errorf("/proc/net/unix lists the host's abstract socket %s, want it hidden", name)
		}
		f.wantRefused(t, "abstract", name)
	}},
	{"SupervisorSocket", "no socket of a supervisor can be reached from inside, however many attempts are made", func(t *testing.T, f *fixture) {
		targets := []string{"/sluice/socket", "/var/run/docker.sock", "/run/docker.sock"}
		for _, pattern := range f.factory.Sockets {
			found, err := filepath.Glob(filepath.Join(os.TempDir(), pattern))
			testkit.Must(t, err)
			if len(found) == 0 {
				t.Errorf("no socket matches %s, want one to attack", pattern)
			}
			targets = append(targets, found...)
		}
		f.wantRefused(t, "flood")
		f.wantRefused(t, "flood", targets...)
		f.wantAlive(t, f.attacker)
	}},
}

// hostAddresses returns the host's addresses, with those of the loopback.
func hostAddresses(t *testing.T) (list []string) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	testkit.Must(t, err)
	for _, a := range addresses {
		// A link-local address needs the name of the host's link, which does not exist inside.
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			list = append(list, ip.IP.String())
		}
	}
	return list
}

// listener receives what is sent to one of the host's addresses.
type listener struct {
	tcp net.Listener
	udp net.PacketConn
}

func listen(t *testing.T, address string) *listener {
	t.Helper()
	var c net.ListenConfig
	tcp, err := c.Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	testkit.Must(t, err)
	udp, err := c.ListenPacket(t.Context(), "udp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(errors.Join(err, tcp.Close()))
	}
	t.Cleanup(func() {
		testkit.Must(t, errors.Join(tcp.Close(), udp.Close()))
	})
	return &listener{tcp: tcp, udp: udp}
}

// wantNothingReceived sends a message itself and fails the test unless it is the first to arrive: an earlier one would arrive before.
func (l *listener) wantNothingReceived(t *testing.T) {
	t.Helper()
	const message = "from the host"
	deadline := time.Now().Add(testkit.Timeout)
	for network, address := range map[string]string{"tcp": l.tcp.Addr().String(), "udp": l.udp.LocalAddr().String()} {
		conn, err := (&net.Dialer{Deadline: deadline}).DialContext(t.Context(), network, address)
		if err == nil {
			_, err = conn.Write([]byte(message))
			err = errors.Join(err, conn.Close())
		}
		if err != nil {
			t.Fatalf("send to %s %s from the host: %v", network, address, err)
		}
	}
	b := make([]byte, 100)
	n := 0
	conn, err := l.tcp.Accept()
	if err == nil {
		n, err = conn.Read(b)
		err = errors.Join(err, conn.Close())
	}
	testkit.Must(t, err)
	testkit.Equal(t, "the first message at tcp "+l.tcp.Addr().String(), string(b[:n]), message)
	testkit.Must(t, l.udp.SetReadDeadline(deadline))
	n, _, err = l.udp.ReadFrom(b)
	testkit.Must(t, err)
	testkit.Equal(t, "the first message at udp "+l.udp.LocalAddr().String(), string(b[:n]), message)
}
