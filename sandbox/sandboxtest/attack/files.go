package attack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
)

// Files that are not the sandbox's own.
var fileAttacks = []attack{
	{"Host", "no file of the host is there, but for programs", false, func(t *testing.T, s *scene) {
		for _, path := range []string{s.secret, "/etc/shadow", "/etc/sudoers", "/root", "/home", "/var/lib", "/var/run/docker.sock", "/run/docker.sock",
			"/boot", "/sys/kernel", "/sys/firmware", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse"} {
			if r := s.sh(t, `cat "$1" || ls -A "$1"`, path); r.Code == 0 && r.stdout != "" {
				t.Errorf("%s: %q", path, r.stdout)
			}
		}
		if s.f.Root != nil {
			got := strings.Fields(s.sh(t, "ls -A /").stdout)
			for _, name := range got {
				if !slices.Contains(s.f.Root, name) {
					t.Errorf("/%s is there", name)
				}
			}
		}
		if r := s.sh(t, `find / \( -path /usr -o -path /proc -o -path /sys \) -prune -o -name secret -print 2>/dev/null`); r.stdout != "" {
			t.Errorf("the host's secret is at %s", r.stdout)
		}
	}},
	{"Kernel", "files by which the kernel is told or tells too much are empty, or not writable", false, func(t *testing.T, s *scene) {
		for _, path := range []string{"/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/proc/slabinfo", "/proc/sysrq-trigger"} {
			if r := s.sh(t, `head -c 100 "$1"`, path); r.stdout != "" {
				t.Errorf("%s: %q", path, r.stdout)
			}
		}
		for _, path := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe",
			"/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/self/uid_map", "/proc/self/attr/current",
			"/proc/1/oom_score_adj", "/proc/irq/default_smp_affinity", "/sys/kernel/uevent_helper", "/sys/power/state"} {
			if r := s.sh(t, `f=$1; [ -e "$f" ] && [ ! -c "$f" ] && echo 0 >"$f" && echo written`, path); strings.Contains(r.stdout, "written") {
				t.Errorf("%s could be written to", path)
			}
		}
		if r := s.sh(t, `echo -1000 >/proc/self/oom_score_adj && echo written; for f in /sys/fs/cgroup/*/* /sys/fs/cgroup/*; do [ -f "$f" ] && [ -w "$f" ] && ( : >>"$f" ) && echo "$f"; done; true`); r.stdout != "" {
			t.Errorf("limits could be changed: %s", r.stdout)
		}
	}},
	{"Root", "nothing can be written but the workspace and memory file systems", false, func(t *testing.T, s *scene) {
		r := s.sh(t, `for d in / /usr /usr/bin /usr/lib /etc /etc/ssl /bin /lib /dev /proc /run /var /sys; do touch "$d/planted" 2>/dev/null && echo "$d"; done
for f in /bin/sh /usr/bin/env /etc/passwd /etc/hosts; do ( : >>"$f" ) 2>/dev/null && echo "$f"; done; true`)
		if r.stdout != "" {
			t.Errorf("could be written: %s", r.stdout)
		}
		if r := s.sh(t, `for d in /tmp /dev/shm /workspace; do echo x >$d/x && rm $d/x || echo $d; done`); r.stdout != "" {
			t.Errorf("could not be written: %s", r.stdout)
		}
	}},
	{"OwnProgram", "the supervisor's program cannot be overwritten", false, func(t *testing.T, s *scene) {
		r := s.sh(t, `( : >>/proc/1/exe ) && echo written; ( : >>/proc/self/exe ) && echo written; true`)
		if r.stdout != "" {
			t.Error(r.stdout)
		}
	}},
	{"Neighbour", "another sandbox's workspace, processes and memory are not there", false, func(t *testing.T, s *scene) {
		if r := s.sh(t, `cat "$1/canary" /workspace/../canary; ls -d /workspace?*; ipcs -m 2>/dev/null | grep 0x; true`, s.next); r.stdout != "" {
			t.Errorf("seen: %q", r.stdout)
		}
		s.command(t, s.neighbour, sandbox.Command{Path: "sh", Args: []string{"-c", "echo x >/tmp/mine; echo x >/dev/shm/mine"}})
		if r := s.sh(t, `ls /tmp /dev/shm`); strings.Contains(r.stdout, "mine") {
			t.Errorf("seen: %q", r.stdout)
		}
		r := s.sh(t, `ls -d /proc/[0-9]* | wc -l`)
		if n := strings.TrimSpace(r.stdout); len(n) > 1 {
			t.Errorf("%s processes are seen", n)
		}
	}},
	{"Links", "symbolic links lead nowhere outside, hard links cannot take from the root", false, func(t *testing.T, s *scene) {
		r := s.sh(t, `ln -s "$1" out && cat out; true`, s.secret)
		if r.stdout != "" {
			t.Errorf("%q", r.stdout)
		}
		s.refused(t, "links")
		// The host's side must not follow either.
		s.sh(t, `rm -rf dir; ln -s "$1" dir`, filepath.Dir(s.secret))
		if _, err := s.start(s.box, sandbox.Command{Path: "cat", Args: []string{"secret"}, Dir: "dir"}); err == nil {
			t.Error("the host followed a link out of the workspace")
		}
	}},
	{"Descriptors", "a process has its three descriptors, and nothing of the worker's or the supervisor's", false, func(t *testing.T, s *scene) {
		for name, what := range s.probe(t, "descriptors") {
			if strings.HasPrefix(what, "done") {
				t.Errorf("%s: %s", name, what)
			}
		}
	}},
	{"Environment", "nothing of the worker's environment is in a process, in the supervisor or in what starts it", false, func(t *testing.T, s *scene) {
		secret := os.Getenv(secretName)
		if secret == "" {
			t.Fatal("there is nothing to find")
		}
		if r := s.sh(t, `env; cat /proc/1/environ /proc/*/environ 2>/dev/null; true`); strings.Contains(r.stdout, secret) || strings.Contains(r.stdout, secretName) {
			t.Errorf("%q", r.stdout)
		}
		// As the host sees it, whatever this test has started. Its own file holds what it was started with.
		found, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), secret) {
				t.Errorf("the secret is in %s", path)
			}
		}
	}},
	{"Cores", "a crash leaves no core, in the workspace or on the host, and starts no program of the host's", false, func(t *testing.T, s *scene) {
		// A limit of 1 byte is the kernel's word for that: with 0 a host's program for crashes would be started.
		if r := s.sh(t, `grep core /proc/self/limits`); strings.Join(strings.Fields(r.stdout), " ") != "Max core file size 1 1 bytes" {
			t.Errorf("%q", r.stdout)
		}
		if r := s.sh(t, `ulimit -c unlimited && echo raised; sh -c 'kill -SEGV $$'; true`); r.stdout != "" {
			t.Errorf("%q", r.stdout)
		}
		if left, err := filepath.Glob(filepath.Join(s.workspace, "*core*")); err != nil || len(left) > 0 {
			t.Error(left, err)
		}
	}},
}
