package client_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Ten minutes 16: the snippets of the Go guide are lines of the examples, which the tests compile and run.
func TestGuideIsMadeOfExamples(t *testing.T) {
	examples := ""
	files, err := filepath.Glob("../*/example*_test.go")
	testkit.Must(t, err)
	for _, file := range files {
		body, err := os.ReadFile(file)
		testkit.Must(t, err)
		examples += string(body)
	}
	guide, err := os.ReadFile("../docs/go.md")
	testkit.Must(t, err)
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	if len(snippets) < 5 {
		t.Errorf("the guide has %d snippets, want more", len(snippets))
	}
	for _, s := range snippets {
		indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(s[1], "\n"), "\n", "\n\t") + "\n"
		if !strings.Contains(examples, indented) {
			t.Errorf("no example has this snippet of docs/go.md:\n%s", s[1])
		}
	}
}
