package attack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
)

// System calls that commands do not need.
var callAttacks = []attack{
	{"Mounts", "every call that changes mounts fails", func(t *testing.T, f *fixture) { f.wantRefused(t, "mounts") }},
	{"Namespaces", "no namespace can be created or entered; clone3 does not exist", func(t *testing.T, f *fixture) {
		if got := f.wantRefused(t, "namespaces"); got["clone3"] != "ENOSYS" {
			t.Errorf("clone3 = %s, want ENOSYS: programs fall back to clone only then", got["clone3"])
		}
	}},
	{"OtherProcesses", "no process can be traced or read, the supervisor included", func(t *testing.T, f *fixture) {
		f.wantRefused(t, "others")
		f.wantAlive(t, f.attacker)
	}},
	{"Kernel", "calls that change the machine, and those with a large attack surface, fail", func(t *testing.T, f *fixture) { f.wantRefused(t, "kernel") }},
	{"Sockets", "only local sockets and those of TCP and UDP can be created", func(t *testing.T, f *fixture) { f.wantRefused(t, "sockets") }},
	{"Clocks", "no clock can be set", func(t *testing.T, f *fixture) { f.wantRefused(t, "clocks") }},
	{"Terminals", "no input can be inserted into a terminal", func(t *testing.T, f *fixture) { f.wantRefused(t, "terminals") }},
	{"Modes", "no file gets set-id bits, on the host either; no device can be created; no process becomes root", func(t *testing.T, f *fixture) {
		got := f.probe(t, "modes")
		for name, what := range got {
			if (what == done) != (name == "plain file") {
				t.Errorf("%s: result = %s, want an error except for the plain file", name, what)
			}
		}
		err := filepath.WalkDir(f.workspace, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := os.Lstat(path)
			if err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeDevice) != 0 {
				t.Errorf("mode of %s on the host = %v, want no set-id bits and no device", path, info.Mode())
			}
			return err
		})
		testkit.Must(t, err)
	}},
	{"OtherTables", "a call by another table of numbers kills the process, or fails", func(t *testing.T, f *fixture) {
		for name, what := range f.probe(t, "tables") {
			// Without support for 32-bit programs the kernel answers int 0x80 with SIGSEGV.
			if !slices.Contains([]string{"killed by SIGSYS", "killed by SIGSEGV", "refused"}, what) && name != "none" {
				t.Errorf("%s: result = %s, want a kill by signal or a refusal", name, what)
			}
		}
		f.wantAlive(t, f.attacker)
	}},
	{"Demotion", "the supervisor's scheduling cannot be changed, by its process, group or user; a process can change its own", func(t *testing.T, f *fixture) {
		for name, what := range f.probe(t, "demote") {
			if (what == done) != strings.HasPrefix(name, "self ") {
				t.Errorf("%s: result = %s, want an error except for the process itself", name, what)
			}
		}
	}},
	{"Supervisor", "signals to pid 1 are dropped, and its limits cannot be changed", func(t *testing.T, f *fixture) {
		f.wantRefused(t, "supervisor")
		f.wantAlive(t, f.attacker)
		f.sh(t, "kill -9 -1; kill -TERM 1; kill -KILL 1; kill -STOP 1")
		f.wantAlive(t, f.attacker)
	}},
	{"SignalStorm", "signals to pid 1 are dropped also while it forks or handles one", func(t *testing.T, f *fixture) {
		p, err := f.start(f.attacker, sandbox.Command{Path: "./probe", Args: []string{"storm"}})
		testkit.Must(t, err)
		f.readUntil(t, p, "began")
		for range 20 {
			f.wantAlive(t, f.attacker)
		}
		testkit.Must(t, p.Kill(0))
		f.finish(t, p)
	}},
}
