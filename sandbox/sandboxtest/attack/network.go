package attack

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// Ways out over the network.
var networkAttacks = []attack{
	{"Egress", "no address outside can be reached, and no route leads there", false, func(t *testing.T, s *scene) {
		r := s.sh(t, "cat /proc/net/route /proc/net/dev")
		for line := range strings.Lines(r.stdout) {
			if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name != "lo" {
				t.Errorf("there is an interface %s", name)
			}
		}
		if n := strings.Count(r.stdout, "\n"); n > 4 {
			t.Errorf("there are routes: %s", r.stdout)
		}
	}},
	{"Loopback", "the host's loopback is not the sandbox's", false, func(t *testing.T, s *scene) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		hex := fmt.Sprintf(":%04X", port)
		if r := s.sh(t, "cat /proc/net/tcp /proc/net/tcp6"); strings.Contains(r.stdout, hex) {
			t.Error("the host's sockets are seen")
		}
		if r := s.sh(t, "command -v bash >/dev/null || exit 1; exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/$0' "+fmt.Sprint(port)); r.Code == 0 {
			t.Error("connected to the host's loopback")
		}
	}},
	{"AbstractSockets", "abstract sockets of the host are not there", false, func(t *testing.T, s *scene) {
		l, err := net.Listen("unix", "@sluice-attack")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if r := s.sh(t, "cat /proc/net/unix"); strings.Contains(r.stdout, "@sluice-attack") {
			t.Error("the host's abstract socket is seen")
		}
	}},
}
