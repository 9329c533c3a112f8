package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// completions are the values that sluice offers for the last argument.
func (c *cli) completions(args ...string) (values []string) {
	c.t.Helper()
	got := c.run(append([]string{"__completeNoDesc"}, args...)...)
	got.check(c.t).exits(0)
	for line := range strings.Lines(got.stdout) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, ":") {
			values = append(values, line)
		}
	}
	return values
}

// What the server has is offered, wherever it may be typed.
func TestCompletionOfLiveValues(t *testing.T) {
	c := newUp(t)
	c.env[completionTimeoutEnv] = testkit.Timeout.String()
	work, store := t.TempDir(), "file://"+t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(work, "f"), nil, 0o600))
	c.run("sync", "push", work, store).check(t).exits(0)
	versions := decode[versionList](t, c.run("sync", "versions", store, "--json").stdout)
	c.run("session", "create", "alpha", "--provider", "local", "--user", "ann").check(t).exits(0)
	session := decode[*schemas.Session](t, c.run("session", "get", "alpha", "--json").stdout)
	process := strings.TrimSpace(c.run("process", "start", "--thread", "alpha", "--", "sleep", "300").stdout)
	c.run("exec", "--thread", "alpha", "--key", "k", "--", "true").check(t).exits(0)
	ended := schemas.ProcessID(schemas.DefaultTenant, "alpha", "k")
	c.run("service", "start", "--provider", "local", "alpha", "web", "--", "sleep", "300").check(t).exits(0)
	token := decode[schemas.Token](t, c.run("token", "create", "--json").stdout)
	service := decode[[]schemas.Service](t, c.run("service", "list", "--json").stdout)[0].Process()
	for _, v := range []struct {
		line, want string // separated by spaces; the last word of the line is completed
	}{
		{"session get |", "alpha"}, {"session stop al|", "alpha"}, {"session stop x|", ""}, {"session get alpha |", ""},
		{"exec --thread |", "alpha"}, {"logs -t |", "alpha"}, {"top |", "alpha"}, {"messages |", "alpha"}, {"workspace rm |", "alpha"},
		{"file ls |", "alpha:"}, {"cp |", "alpha:"}, {"cp . |", "alpha:"}, {"port-forward |", "alpha"},
		{"process kill " + process[:9] + "|", process}, {"process wait " + process + " " + ended[:9] + "|", ended}, {"logs " + ended[:9] + "|", ended},
		{"process kill " + ended[:9] + "|", ""}, {"process kill --thread none |", ""}, {"attach " + service[:9] + "|", service},
		{"service logs alpha |", "web"}, {"service stop none |", ""}, {"service logs alpha web |", ""},
		{"template show echo|", "echo-agent"}, {"message --template echo|", "echo-agent"}, {"token revoke |", token.ID},
		{"exec --session |", session.ID}, {"session list --user |", "ann"}, {"session list --state runn|", "running"}, {"token create --scope ex|", "exec"},
		{"exec --provider j|", "jail"}, {"completion |", "bash zsh fish"}, {"sync restore . " + store + " --at |", versions.Versions[0].ID},
		{"sync diff " + store + " |", versions.Versions[0].ID}, {"status |", ""},
	} {
		args := strings.Split(strings.TrimSuffix(v.line, "|"), " ")
		testkit.Equal(t, "completions of sluice "+v.line, strings.Join(c.completions(args...), " "), v.want)
	}
	c.run("__complete", "logs", process[:9]).check(t).printsPart(process + "\trunning: sleep 300\n")

	// The script asks this program, and shows what it answers.
	bash, err := exec.LookPath("bash")
	if err != nil {
		testkit.Missing(t, "bash", "apt-get install bash")
	}
	script := filepath.Join(t.TempDir(), "script")
	testkit.Must(t, os.WriteFile(script, []byte(c.run("completion", "bash").stdout), 0o600))
	shell := exec.Command(bash, "--norc", "-c", `
sluice() { "$0" "$@"; }
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}; }
source "$1"
COMP_WORDS=(sluice --data "$2" session stop al) COMP_CWORD=5 COMP_LINE="${COMP_WORDS[*]}" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_sluice
printf '%s\n' "${COMPREPLY[@]}"`, os.Args[0], script, c.data)
	shell.Env = append(os.Environ(), asSluice+"=1", completionTimeoutEnv+"="+c.env[completionTimeoutEnv])
	out, err := shell.Output() // compopt complains that no key was pressed
	testkit.Must(t, err)
	testkit.Equal(t, "what bash completes", strings.TrimSpace(string(out)), "alpha")

	c.env[completionTimeoutEnv] = "1ns"
	testkit.Equal(t, "completions when no time is left", len(c.completions("session", "get", "")), 0)
}

// Without a server there is nothing to offer, no error, and no server afterwards.
func TestCompletionStartsNothing(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, line := range []string{"session get ", "process kill ", "logs -t ", "template show ", "token revoke ", "service logs t1 ", "workspace rm ", "--nats nats://127.0.0.1:1 session get "} {
		got := c.run(append([]string{"__complete"}, strings.Split(line, " ")...)...)
		got.check(t).exits(0).prints(":4\n").that(!strings.Contains(got.stderr, "unavailable"), "%s: want no error", line)
	}
	left, err := os.ReadDir(c.data)
	testkit.Must(t, err)
	testkit.Equal(t, "files in the data folder", len(left), 0)
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("completion", "bash").check(t).exits(0).printsPart("__start_sluice").reportsNothing()
	c.run("completion", "zsh").check(t).exits(0).printsPart("#compdef sluice").reportsNothing()
	c.run("completion", "fish").check(t).exits(0).printsPart("complete -c sluice").reportsNothing()
	c.run("completion").wantError(t, schemas.CodeInvalidArgument, "bash, zsh or fish")
	c.run("completion", "tcsh").wantError(t, schemas.CodeInvalidArgument, `"tcsh"`, "bash, zsh or fish")
}
