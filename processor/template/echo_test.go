package template_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/template"
)

func echoAgent(t *testing.T) []string {
	t.Helper()
	s, err := template.New(template.Config{})
	testkit.Must(t, err)
	one, err := s.Template("echo-agent")
	testkit.Must(t, err)
	return one.Agent.Command
}

// The script must run in the shells of small images and of Debian, and in bash.
func TestEchoAgent(t *testing.T) {
	shells := [][]string{{"sh"}, {"dash"}, {"busybox", "sh"}, {"bash", "--posix"}}
	for _, shell := range shells {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			if _, err := exec.LookPath(shell[0]); err != nil {
				testkit.Missing(t, shell[0], "apt-get install "+shell[0])
			}
			dir := t.TempDir()
			ask := func(prompt string) string {
				words := append(append([]string{}, shell...), echoAgent(t)[1:]...)
				cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
				cmd.Dir, cmd.Stdin = dir, strings.NewReader(prompt)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return string(out)
			}
			tests := []struct{ prompt, want string }{
				{"hello world", "(1) hello world\n" + `{"type":"result","usage":{"input_tokens":2,"output_tokens":3}}` + "\n"},
				{"", "(2)\n" + `{"type":"result","usage":{"input_tokens":0,"output_tokens":1}}` + "\n"},
				{"* $(id) `id` %s \\n \"", "(3) * $(id) `id` %s \\n \"\n" + `{"type":"result","usage":{"input_tokens":6,"output_tokens":7}}` + "\n"},
				{"-n a\n\tb", "(4) -n a b\n" + `{"type":"result","usage":{"input_tokens":3,"output_tokens":4}}` + "\n"},
			}
			for _, tt := range tests {
				if got := ask(tt.prompt); got != tt.want {
					t.Errorf("answer to %q = %q, want %q", tt.prompt, got, tt.want)
				}
			}
			for _, count := range []string{"", "rubbish", "007", "1; id", "99999999999999999999", "-1"} {
				write(t, dir, ".echo-agent", count+"\n")
				if got := ask("x"); !strings.HasPrefix(got, "(1) x\n") {
					t.Errorf("answer with the count %q = %q, want (1) x", count, got)
				}
			}
		})
	}
}
