package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// example is a block of shell in a page, and what its last command prints, where the page says so.
type example struct{ script, prints string }

func examples(page string) (all []example) {
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n\n^```json\n(.*?)^```$)?").FindAllStringSubmatch(page, -1) {
		all = append(all, example{m[1], m[2]})
	}
	return all
}

// differs are fields of examples with another value each time.
const differs = "session_id request_id expires_at modified startTime execution_time_ms uptime_seconds worker_id id pid processId path workspace_dir next"

// The curl examples of docs/http.md do what the page says, in its order.
func TestHTTPExamples(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			testkit.Missing(t, tool, "apt-get install "+tool)
		}
	}
	c := newCLI(t)
	url := c.upWeb()
	folder := filepath.Join(c.data, "examples")
	testkit.Must(t, os.Mkdir(folder, 0o700))
	script := "set -euo pipefail\nsluice() { " + os.Args[0] + " --data " + c.data + " \"$@\"; }\n"
	all := examples(doc(t, "http.md"))[1:] // `sluice up` runs already
	for i, e := range all {
		script += fmt.Sprintf("{ %s\n} | tee %d.out >/dev/null\n", strings.ReplaceAll(e.script, "http://127.0.0.1:8080", url), i)
	}
	// The first of them sets variables: no pipe.
	script = strings.Replace(script, "{ URL=", "URL=", 1)
	script = strings.Replace(script, "\n} | tee 0.out >/dev/null\n", "\n", 1)
	script = regexp.MustCompile(`(?m)^\{ (SESSION=.*)$`).ReplaceAllString(script, "$1\n{")
	cmd := exec.CommandContext(testkit.Context(t), "bash", "-c", script)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), asSluice+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the examples: %v\n%s\n%s", err, out, script)
	}
	checked := 0
	for i, e := range all {
		if e.prints == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, fmt.Sprint(i, ".out")))
		testkit.Must(t, err)
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		got, want := map[string]any{}, map[string]any{}
		testkit.Must(t, json.Unmarshal([]byte(e.prints), &want))
		if err := json.Unmarshal(lines[len(lines)-1], &got); err != nil {
			t.Errorf("%v: %s printed %q", err, e.script, text)
		}
		testkit.Equal(t, e.script, got, want, cmp.FilterPath(func(p cmp.Path) bool {
			field, ok := p.Last().(cmp.MapIndex)
			return ok && strings.Contains(" "+differs+" ", " "+field.Key().String()+" ")
		}, cmp.Comparer(func(a, b any) bool { return a != nil && b != nil })))
		checked++
	}
	if checked < 10 {
		t.Errorf("%d examples checked, want those of every endpoint", checked)
	}
}
