package sandboxtest

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What a process gets when it starts.
var childTests = []test{
	{"Arguments", func(t *testing.T, f *fixture) {
		args := []string{"", " ", "two words", "line\nbreak", `"quoted" 'twice' \ $HOME`, "*", "-n", "\xff\xfe\x01", "été", "=", strings.Repeat("x", 100<<10)}
		r := f.run(t, sandbox.Command{Path: "printf", Args: append([]string{`%s\0`}, args...)})
		got := strings.Split(strings.TrimSuffix(r.stdout.String(), "\x00"), "\x00")
		testkit.Equal(t, "arguments", got, args)
	}},
	{"Environment", func(t *testing.T, f *fixture) {
		t.Setenv("SLUICE_TEST_OF_INHERITANCE", "must not be visible")
		home := strings.TrimSpace(f.output(t, "pwd"))
		r := f.start(t, sandbox.Command{ID: "env", Path: "env", Args: []string{"-0"}, Env: map[string]string{
			"FROM_COMMAND": "a=b\nc", "BOTH": "command", "EMPTY": "", "SLUICE_PROCESS": "another",
		}})
		r.wantExit(t, schemas.ReasonExited, 0)
		got := strings.Split(strings.TrimSuffix(r.stdout.String(), "\x00"), "\x00")
		slices.Sort(got)
		want := []string{
			"BOTH=command", "EMPTY=", "FROM_COMMAND=a=b\nc", "FROM_SPEC=spec", "HOME=" + home, "LANG=C.UTF-8",
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SLUICE_PROCESS=env",
			"SLUICE_THREAD=thread-1", "TERM=dumb",
		}
		testkit.Equal(t, "environment", got, want)
	}},
	{"Descriptors", func(t *testing.T, f *fixture) {
		// Other processes start meanwhile, so that a descriptor that leaks between a fork and an exec shows.
		other := f.start(t, sandbox.Command{Path: "cat", Stdin: true})
		for range 10 {
			got := strings.Fields(f.output(t, `ls /proc/$$/fd; true`))
			testkit.Equal(t, "descriptors", got, []string{"0", "1", "2"})
		}
		testkit.Equal(t, "standard input", f.output(t, `readlink /proc/$$/fd/0`), "/dev/null\n")
		other.wantEnd(t)
	}},
	{"Signals", func(t *testing.T, f *fixture) {
		r := f.run(t, sandbox.Command{Path: "cat", Args: []string{"/proc/self/status"}})
		seen := 0
		for line := range strings.Lines(r.stdout.String()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "SigBlk" || name == "SigIgn" {
				seen++
				testkit.Equal(t, name, strings.Trim(strings.TrimSpace(value), "0"), "")
			}
		}
		if seen != 2 {
			t.Errorf("found %d signal masks in %s, want 2", seen, r.stdout.String())
		}
	}},
	{"Limits", func(t *testing.T, f *fixture) {
		testkit.Equal(t, "umask and core size", f.output(t, `umask; ulimit -c`), "0022\n0\n")
	}},
	{"Session", func(t *testing.T, f *fixture) {
		r := f.run(t, sandbox.Command{Path: "cat", Args: []string{"/proc/self/stat"}})
		stat := strings.Fields(r.stdout.String())
		if len(stat) < 6 || stat[4] != stat[0] || stat[5] != stat[0] {
			t.Errorf("stat = %s, want the process's own group and session", r.stdout.String())
		}
		if pid := strconv.Itoa(r.PID()); pid != stat[0] {
			t.Logf("the PID is %s on the host and %s in the sandbox", pid, stat[0])
		}
	}},
}
