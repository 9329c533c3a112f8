package template_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/processor/template"
)

func echoAgent(t *testing.T) []string {
	t.Helper()
	s, err := template.New("")
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.Template("echo-agent")
	if err != nil {
		t.Fatal(err)
	}
	return one.Agent.Command
}

// shells are those of small images, of Debian, and the one that people have.
func TestEchoAgent(t *testing.T) {
	shells := [][]string{{"sh"}, {"dash"}, {"busybox", "sh"}, {"bash", "--posix"}}
	for _, shell := range shells {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			if _, err := exec.LookPath(shell[0]); err != nil {
				if os.Getenv("CI") == "true" && shell[0] == "sh" {
					t.Fatal(err)
				}
				t.Skipf("%s is not here: apt-get install %s", shell[0], shell[0])
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
					t.Errorf("%q is answered by %q, want %q", tt.prompt, got, tt.want)
				}
			}
			for _, memory := range []string{"", "rubbish", "007", "1; id", "99999999999999999999", "-1"} {
				if err := os.WriteFile(filepath.Join(dir, ".echo-agent"), []byte(memory+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if got := ask("x"); !strings.HasPrefix(got, "(1) x\n") {
					t.Errorf("with %q in its memory: %q", memory, got)
				}
			}
		})
	}
}
