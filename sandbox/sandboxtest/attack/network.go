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
)

// Ways out over the network.
var networkAttacks = []attack{
	{"Routes", "there is a loopback, and no route that leads out", false, func(t *testing.T, s *scene) {
		r := s.sh(t, "cat /proc/net/route /proc/net/dev")
		for line := range strings.Lines(r.stdout) {
			if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name != "lo" {
				t.Errorf("there is an interface %s", name)
			}
		}
		if n := strings.Count(r.stdout, "\n"); n > 4 {
			t.Errorf("there are routes: %s", r.stdout)
		}
		s.refused(t, "route")
	}},
	{"Egress", "nothing that is sent to the host, by TCP or UDP, on any of its addresses, comes there; nothing outside answers", false, func(t *testing.T, s *scene) {
		var ears []*ear
		var targets []string
		for _, address := range hostAddresses(t) {
			e := listen(t, address)
			ears = append(ears, e)
			targets = append(targets, "tcp!"+e.tcp.Addr().String(), "udp!"+e.udp.LocalAddr().String())
		}
		for name, what := range s.probeAt(t, targets, "reach") {
			if strings.HasPrefix(name, "tcp") && what == "done" {
				t.Errorf("connected to the host: %s", name)
			}
		}
		for _, e := range ears {
			e.heardNothing(t)
		}
		// Where clouds tell their secrets, a name server, everybody on the network.
		out := []string{"tcp!169.254.169.254:80", "tcp!1.1.1.1:53", "udp!1.1.1.1:53", "udp!224.0.0.1:5353", "udp!255.255.255.255:67", "tcp![2606:4700:4700::1111]:53", "udp![ff02::1]:5353"}
		for name, what := range s.probeAt(t, out, "reach") {
			if what == "done" {
				t.Errorf("%s was reached", name)
			}
		}
		for name, what := range s.probeAt(t, []string{"169.254.169.254", "1.1.1.1", "224.0.0.1"}, "ping") {
			if what == "done" {
				t.Errorf("%s was sent", name)
			}
		}
	}},
	{"AbstractSockets", "abstract sockets of the host are not there", false, func(t *testing.T, s *scene) {
		name := "@sluice-attack-" + rand.Text()
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		// Beside it under the same name, since the two are told apart by kind.
		d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Logf("no datagrams: %v", err)
		} else {
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
		}
		if r := s.sh(t, "cat /proc/net/unix"); strings.Contains(r.stdout, name) {
			t.Error("the host's abstract socket is seen")
		}
		for what, got := range s.probeAt(t, []string{name}, "abstract") {
			if got == "done" {
				t.Errorf("connected to the host's %s", what)
			}
		}
	}},
	{"SupervisorSocket", "no socket of a supervisor can be reached from inside, however often it is tried", false, func(t *testing.T, s *scene) {
		targets := []string{"/sluice/socket", "/var/run/docker.sock", "/run/docker.sock"}
		for _, pattern := range s.f.Sockets {
			found, err := filepath.Glob(filepath.Join(os.TempDir(), pattern))
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 0 {
				t.Errorf("there is no %s to try", pattern)
			}
			targets = append(targets, found...)
		}
		s.refused(t, "flood")
		for name, what := range s.probeAt(t, targets, "flood") {
			if what == "done" {
				t.Errorf("%s worked", name)
			}
		}
		s.alive(t, s.box)
	}},
}

// hostAddresses are the host's own, the loopback among them.
func hostAddresses(t *testing.T) (list []string) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		// One of a link alone needs the link's name, which means nothing inside.
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			list = append(list, ip.IP.String())
		}
	}
	return list
}

// ear hears what comes to one of the host's addresses.
type ear struct {
	tcp net.Listener
	udp net.PacketConn
}

func listen(t *testing.T, address string) *ear {
	t.Helper()
	var c net.ListenConfig
	tcp, err := c.Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	udp, err := c.ListenPacket(t.Context(), "udp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(errors.Join(err, tcp.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(tcp.Close(), udp.Close()); err != nil {
			t.Error(err)
		}
	})
	return &ear{tcp: tcp, udp: udp}
}

// heardNothing sends something itself, and fails unless that is the first that comes: what was sent before would have come before.
func (e *ear) heardNothing(t *testing.T) {
	t.Helper()
	const mark = "from the host"
	deadline := time.Now().Add(Patience)
	for network, address := range map[string]string{"tcp": e.tcp.Addr().String(), "udp": e.udp.LocalAddr().String()} {
		conn, err := (&net.Dialer{Deadline: deadline}).DialContext(t.Context(), network, address)
		if err == nil {
			_, err = conn.Write([]byte(mark))
			err = errors.Join(err, conn.Close())
		}
		if err != nil {
			t.Fatalf("%s %s: the host does not reach itself: %v", network, address, err)
		}
	}
	b := make([]byte, 100)
	n := 0
	conn, err := e.tcp.Accept()
	if err == nil {
		n, err = conn.Read(b)
		err = errors.Join(err, conn.Close())
	}
	if err != nil || string(b[:n]) != mark {
		t.Errorf("%s: %q, %v", e.tcp.Addr(), b[:n], err)
	}
	if err := e.udp.SetReadDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	if n, _, err = e.udp.ReadFrom(b); err != nil || string(b[:n]) != mark {
		t.Errorf("%s: %q, %v", e.udp.LocalAddr(), b[:n], err)
	}
}
