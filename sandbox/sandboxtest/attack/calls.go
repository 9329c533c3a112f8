package attack

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// System calls that no command needs.
var callAttacks = []attack{
	{"Mounts", "every call that changes mounts fails", false, func(t *testing.T, s *scene) { s.refused(t, "mounts") }},
	{"Namespaces", "no namespace can be made or entered; clone3 is not there", false, func(t *testing.T, s *scene) {
		if got := s.refused(t, "namespaces"); got["clone3"] != "ENOSYS" {
			t.Errorf("clone3: %s; programs fall back on clone only after ENOSYS", got["clone3"])
		}
	}},
	{"OtherProcesses", "no process can be traced or read, least of all the supervisor", false, func(t *testing.T, s *scene) {
		s.refused(t, "others")
		s.alive(t, s.box)
	}},
	{"Kernel", "the machine's own calls, and the large surfaces, fail", false, func(t *testing.T, s *scene) { s.refused(t, "kernel") }},
	{"Sockets", "only local and IP sockets can be made, and none of those raw", false, func(t *testing.T, s *scene) { s.refused(t, "sockets") }},
	{"Clocks", "no clock can be set", false, func(t *testing.T, s *scene) { s.refused(t, "clocks") }},
	{"Terminals", "no input can be pushed into a terminal", false, func(t *testing.T, s *scene) { s.refused(t, "terminals") }},
	{"Modes", "no file runs as its owner, on the host either; no device can be made; nobody becomes root", false, func(t *testing.T, s *scene) {
		got := s.probe(t, "modes")
		for name, what := range got {
			if (what == "done") != (name == "plain file") {
				t.Errorf("%s: %s", name, what)
			}
		}
		err := filepath.WalkDir(s.workspace, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := os.Lstat(path)
			if err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeDevice) != 0 {
				t.Errorf("%s is %v on the host", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}},
	{"OtherTables", "a call by another table of numbers ends the process, or is not there", false, func(t *testing.T, s *scene) {
		for name, what := range s.probe(t, "tables") {
			// Without support for 32-bit programs the kernel answers int 0x80 with SIGSEGV.
			if !slices.Contains([]string{"killed by SIGSYS", "killed by SIGSEGV", "refused"}, what) && name != "none" {
				t.Errorf("%s: %s", name, what)
			}
		}
		s.alive(t, s.box)
	}},
	{"Supervisor", "signals to the first process are dropped, its limits are its own", false, func(t *testing.T, s *scene) {
		s.refused(t, "supervisor")
		s.alive(t, s.box)
		s.sh(t, "kill -9 -1; kill -TERM 1; kill -KILL 1; kill -STOP 1")
		s.alive(t, s.box)
	}},
}
