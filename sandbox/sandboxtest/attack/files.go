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

// Files outside the sandbox.
var fileAttacks = []attack{
	{"Host", "no file of the host is visible, except programs", func(t *testing.T, f *fixture) {
		for _, path := range []string{f.secretFile, "/etc/shadow", "/etc/sudoers", "/root", "/home", "/var/lib", "/var/run/docker.sock", "/run/docker.sock",
			"/boot", "/sys/kernel", "/sys/firmware", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse"} {
			if r := f.sh(t, `cat "$1" || ls -A "$1"`, path); r.Code == 0 && r.Stdout != "" {
				t.Errorf("%s: content = %q, want none", path, r.Stdout)
			}
		}
		if f.factory.Root != nil {
			got := strings.Fields(f.sh(t, "ls -A /").Stdout)
			for _, name := range got {
				if !slices.Contains(f.factory.Root, name) {
					t.Errorf("/%s is visible, want only %q", name, f.factory.Root)
				}
			}
		}
		f.wantSilent(t, "paths of the host's secret", `find / \( -path /usr -o -path /proc -o -path /sys \) -prune -o -name secret -print 2>/dev/null`)
	}},
	{"Kernel", "files that control the kernel or reveal its state are not writable, or empty", func(t *testing.T, f *fixture) {
		for _, path := range []string{"/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/proc/slabinfo", "/proc/sysrq-trigger", "/proc/interrupts", "/proc/softirqs"} {
			f.wantSilent(t, path, `head -c 100 "$1"`, path)
		}
		for _, path := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe",
			"/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/self/uid_map", "/proc/self/attr/current",
			"/proc/1/oom_score_adj", "/proc/irq/default_smp_affinity", "/sys/kernel/uevent_helper", "/sys/power/state"} {
			if r := f.sh(t, `f=$1; [ -e "$f" ] && [ ! -c "$f" ] && echo 0 >"$f" && echo written`, path); strings.Contains(r.Stdout, "written") {
				t.Errorf("%s was written, want an error", path)
			}
		}
		f.wantSilent(t, "limits that could be changed", `echo -1000 >/proc/self/oom_score_adj && echo written; for f in /sys/fs/cgroup/*/* /sys/fs/cgroup/*; do [ -f "$f" ] && [ -w "$f" ] && ( : >>"$f" ) && echo "$f"; done; true`)
	}},
	{"Root", "only the workspace and the memory file systems are writable", func(t *testing.T, f *fixture) {
		f.wantSilent(t, "paths that could be written", `for d in / /usr /usr/bin /usr/lib /etc /etc/ssl /bin /lib /dev /proc /run /var /sys; do touch "$d/planted" 2>/dev/null && echo "$d"; done
for f in /bin/sh /usr/bin/env /etc/passwd /etc/hosts; do ( : >>"$f" ) 2>/dev/null && echo "$f"; done; true`)
		f.wantSilent(t, "paths that could not be written", `for d in /tmp /dev/shm /workspace; do echo x >$d/x && rm $d/x || echo $d; done`)
	}},
	{"SupervisorProgram", "the supervisor's program cannot be overwritten", func(t *testing.T, f *fixture) {
		f.wantSilent(t, "write to a running program", `( : >>/proc/1/exe ) && echo written; ( : >>/proc/self/exe ) && echo written; true`)
	}},
	{"Neighbour", "another sandbox's workspace, processes and memory are not visible", func(t *testing.T, f *fixture) {
		f.wantSilent(t, "what is visible of the neighbour", `cat "$1/canary" /workspace/../canary; ls -d /workspace?*; ipcs -m 2>/dev/null | grep 0x; true`, f.neighbourWorkspace)
		f.run(t, f.neighbour, sandbox.Command{Path: "sh", Args: []string{"-c", "echo x >/tmp/mine; echo x >/dev/shm/mine"}})
		if r := f.sh(t, `ls /tmp /dev/shm`); strings.Contains(r.Stdout, "mine") {
			t.Errorf("files in /tmp and /dev/shm = %q, want none of the neighbour's", r.Stdout)
		}
		f.wantFewProcesses(t)
	}},
	{"Links", "symbolic links do not lead outside, and hard links to files of the root fail", func(t *testing.T, f *fixture) {
		f.wantSilent(t, "content of a link's target outside", `ln -s "$1" out && cat out; true`, f.secretFile)
		f.wantRefused(t, "links")
		// The host must not follow the link either.
		f.sh(t, `rm -rf dir; ln -s "$1" dir`, filepath.Dir(f.secretFile))
		if _, err := f.start(f.attacker, sandbox.Command{Path: "cat", Args: []string{"secret"}, Dir: "dir"}); err == nil {
			t.Error("start in a folder outside the workspace: no error, want one")
		}
	}},
	{"Descriptors", "a process has three descriptors, and none of the worker's or the supervisor's", func(t *testing.T, f *fixture) {
		for name, what := range f.probe(t, "descriptors") {
			if strings.HasPrefix(what, done) {
				t.Errorf("%s: result = %s, want no further descriptor", name, what)
			}
		}
	}},
	{"Environment", "the worker's environment is in no process of the sandbox, not in the supervisor, and not in the zygote", func(t *testing.T, f *fixture) {
		secret := os.Getenv(secretVariable)
		if secret == "" {
			t.Fatalf("%s is not set, want a secret", secretVariable)
		}
		if r := f.sh(t, `env; cat /proc/1/environ /proc/*/environ 2>/dev/null; true`); strings.Contains(r.Stdout, secret) || strings.Contains(r.Stdout, secretVariable) {
			t.Errorf("environments in the sandbox = %q, want none with the secret", r.Stdout)
		}
		// On the host, this covers every process that the test has started. The test's own file holds its initial environment.
		found, err := filepath.Glob("/proc/[0-9]*/environ")
		testkit.Must(t, err)
		for _, path := range found {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), secret) {
				t.Errorf("the secret is in %s, want it in no environment", path)
			}
		}
	}},
	{"Cores", "a crash leaves no core dump and starts no program of the host", func(t *testing.T, f *fixture) {
		// With a limit of 1 byte the kernel does neither; with 0 it would start the host's core dump program.
		got := strings.Join(strings.Fields(f.sh(t, `grep core /proc/self/limits`).Stdout), " ")
		testkit.Equal(t, "core limit", got, "Max core file size 1 1 bytes")
		f.wantSilent(t, "raise of the core limit", `ulimit -c unlimited && echo raised; sh -c 'kill -SEGV $$'; true`)
		left, err := filepath.Glob(filepath.Join(f.workspace, "*core*"))
		testkit.Must(t, err)
		if len(left) > 0 {
			t.Errorf("core dumps = %q, want none", left)
		}
	}},
}
