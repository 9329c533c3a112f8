package jail

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// TestNetwork: a jail is in the host's network only where that was asked for, and finds names there as the host does.
func TestNetwork(t *testing.T) {
	p := newProvider(t)
	defer closing(t, p)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		network schemas.Network
		shared  bool
	}{{"", false}, {schemas.NetworkNone, false}, {schemas.NetworkHost, true}} {
		s := makeBox(t, p, sandbox.Spec{ID: "net" + string(k.network), Workspace: t.TempDir(), Network: k.network})
		out, exit := output(t, s, "p", "sh", "-c", "readlink /proc/self/ns/net; cat /etc/resolv.conf")
		if exit.Code != 0 {
			t.Fatalf("%q: %+v %q", k.network, exit, out)
		}
		namespace, names, _ := strings.Cut(out, "\n")
		if (namespace == own) != k.shared {
			t.Errorf("%q: in network %s, the host's is %s", k.network, namespace, own)
		}
		if host, err := os.ReadFile("/etc/resolv.conf"); k.shared && err == nil && names != string(host) {
			t.Errorf("%q: names are found by %q, on the host by %q", k.network, names, host)
		}
		if !k.shared && names != "" {
			t.Errorf("%q: names are found by %q", k.network, names)
		}
	}
}
