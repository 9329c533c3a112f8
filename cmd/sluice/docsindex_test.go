package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Ten minutes 16: the index has every page, and no page, of docs or beside it, has a broken link.
func TestDocsAreIndexedAndLinked(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(docs, "*.md"))
	testkit.Must(t, err)
	index := doc(t, "README.md")
	for _, page := range pages {
		name := filepath.Base(page)
		if name != "README.md" && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not link %s", name)
		}
	}
	for _, pattern := range []string{"../*.md", "*.md", "adr/*.md", "../deploy/*.md", "../examples/*/*.md"} {
		more, err := filepath.Glob(filepath.Join(docs, pattern))
		testkit.Must(t, err)
		if len(more) == 0 {
			t.Errorf("no page is %s", pattern)
		}
		for _, page := range more {
			checkLinks(t, page)
		}
	}
}

// checkLinks follows the links of a page to files and their headings.
func checkLinks(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	testkit.Must(t, err)
	for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(link[1], "://") {
			continue
		}
		path, section, _ := strings.Cut(link[1], "#")
		path = filepath.Join(filepath.Dir(page), cmp.Or(path, filepath.Base(page)))
		body, err := os.ReadFile(path)
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			err = nil
		}
		if err != nil || (section != "" && !strings.Contains(anchors(string(body)), "#"+section+"\n")) {
			t.Errorf("%s: broken link %s", page, link[1])
		}
	}
}

// anchors lists the anchors of a page's headings, a line each.
func anchors(body string) string {
	var b strings.Builder
	for _, h := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(body, -1) {
		fmt.Fprintln(&b, "#"+strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return b.String()
}
