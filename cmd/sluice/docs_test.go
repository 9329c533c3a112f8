package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/allow"
)

// Ten minutes 8: every template in the documentation passes `sluice template check`. A part of one gets a name. A sample that begins with
// tenants is an allow-list.
func TestTemplatesInDocsAreValid(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	pages, err := filepath.Glob("../../docs/*.md")
	testkit.Must(t, err)
	checked := 0
	for _, page := range append(pages, "../../README.md", "../../deploy/README.md") {
		text, err := os.ReadFile(page)
		testkit.Must(t, err)
		for i, sample := range yamlSamples(string(text)) {
			file := filepath.Join(c.data, fmt.Sprintf("%s-%d.yaml", filepath.Base(page), i))
			if strings.HasPrefix(sample, "tenants:") {
				testkit.Must(t, os.WriteFile(file, []byte(sample), 0o600))
				_, err := allow.New(file)
				testkit.Must(t, err)
				continue
			}
			if !regexp.MustCompile(`(?m)^name:`).MatchString(sample) {
				sample = "name: sample\n" + sample
			}
			testkit.Must(t, os.WriteFile(file, []byte(sample), 0o600))
			c.run("template", "check", file).check(t).exits(0)
			checked++
		}
	}
	if checked < 4 {
		t.Errorf("%d samples checked, want those of README.md, templates.md, hooks.md and conversations.md", checked)
	}
}

// yamlSamples are the fenced blocks of YAML in a page, and those that a shell command writes to a file.
func yamlSamples(page string) (samples []string) {
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$|<<'?END'?\n(.*?)^END$").FindAllStringSubmatch(page, -1) {
		samples = append(samples, m[1]+m[2])
	}
	// An indented one begins with a field of templates.
	for _, m := range regexp.MustCompile(`(?m)^    (?:name|hooks|agent|session|sync|policy|limits|env|secrets):.*\n(?:    .*\n|\n)*`).FindAllString(page, -1) {
		samples = append(samples, regexp.MustCompile(`(?m)^    `).ReplaceAllString(strings.TrimRight(m, "\n")+"\n", ""))
	}
	return samples
}
