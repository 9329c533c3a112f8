package sandboxtest

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What a process finds when it starts.
var childTests = []test{
	{"Arguments", func(t *testing.T, b *box) {
		args := []string{"", " ", "two words", "line\nbreak", `"quoted" 'twice' \ $HOME`, "*", "-n", "\xff\xfe\x01", "été", "=", strings.Repeat("x", 100<<10)}
		r := b.start(t, sandbox.Command{Path: "printf", Args: append([]string{`%s\0`}, args...)})
		r.ends(t, schemas.ReasonExited, 0)
		got := strings.Split(strings.TrimSuffix(r.stdout.String(), "\x00"), "\x00")
		if diff := cmp.Diff(args, got); diff != "" {
			t.Error(diff)
		}
	}},
	{"Environment", func(t *testing.T, b *box) {
		t.Setenv("SLUICE_TEST_OF_INHERITANCE", "must not be seen")
		home := strings.TrimSpace(b.say(t, "pwd"))
		r := b.start(t, sandbox.Command{ID: "env", Path: "env", Args: []string{"-0"}, Env: map[string]string{
			"FROM_COMMAND": "a=b\nc", "BOTH": "command", "EMPTY": "", "SLUICE_PROCESS": "another",
		}})
		r.ends(t, schemas.ReasonExited, 0)
		got := strings.Split(strings.TrimSuffix(r.stdout.String(), "\x00"), "\x00")
		slices.Sort(got)
		want := []string{
			"BOTH=command", "EMPTY=", "FROM_COMMAND=a=b\nc", "FROM_SPEC=spec", "HOME=" + home, "LANG=C.UTF-8",
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SLUICE_PROCESS=env",
			"SLUICE_THREAD=thread-1", "TERM=dumb",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}},
	{"Descriptors", func(t *testing.T, b *box) {
		// Others come and go meanwhile, so that what leaks between a fork and an exec would be seen.
		other := b.start(t, sandbox.Command{Path: "cat", Stdin: true})
		for range 10 {
			got := strings.Fields(b.say(t, `ls /proc/$$/fd; true`))
			if diff := cmp.Diff([]string{"0", "1", "2"}, got); diff != "" {
				t.Fatal(diff)
			}
		}
		is(t, "standard input", b.say(t, `readlink /proc/$$/fd/0`), "/dev/null\n")
		if err := other.CloseStdin(); err != nil {
			t.Error(err)
		}
		other.ends(t, schemas.ReasonExited, 0)
	}},
	{"Signals", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "cat", Args: []string{"/proc/self/status"}})
		r.ends(t, schemas.ReasonExited, 0)
		seen := 0
		for line := range strings.Lines(r.stdout.String()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "SigBlk" || name == "SigIgn" {
				seen++
				is(t, name, strings.Trim(strings.TrimSpace(value), "0"), "")
			}
		}
		if seen != 2 {
			t.Errorf("no signal masks in %s", r.stdout.String())
		}
	}},
	{"Limits", func(t *testing.T, b *box) {
		is(t, "umask and core size", b.say(t, `umask; ulimit -c`), "0022\n0\n")
	}},
	{"Session", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "cat", Args: []string{"/proc/self/stat"}})
		r.ends(t, schemas.ReasonExited, 0)
		f := strings.Fields(r.stdout.String())
		if len(f) < 6 || f[4] != f[0] || f[5] != f[0] {
			t.Errorf("neither a group nor a session of its own: %s", r.stdout.String())
		}
		if pid := strconv.Itoa(r.PID()); pid != f[0] {
			t.Logf("PID is %s for the host, %s inside", pid, f[0])
		}
	}},
}
