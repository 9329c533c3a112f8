package main

import (
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestCutAndWrap(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		text string
		most int
		cut  string
		wrap []string
	}{
		{"", 4, "", []string{""}},
		{"four", 4, "four", []string{"four"}},
		{"five5", 4, "fiv…", []string{"five", "5"}},
		{"日本語", 6, "日本語", []string{"日本語"}},
		{"日本語", 5, "日本…", []string{"日本", "語"}},
		{"日本語", 4, "日…", []string{"日本", "語"}},
		{"日本語", 1, "…", []string{"日", "本", "語"}},
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…", []string{"e\u0301e\u0301", "e\u0301"}},
		{"one two three", 8, "one two…", []string{"one two", "three"}},
		{"one two three", 7, "one tw…", []string{"one two", "three"}},
	} {
		testkit.Equal(t, "cut of "+v.text, cut(v.text, v.most), v.cut)
		testkit.Equal(t, "wrap of "+v.text, wrap(v.text, v.most), v.wrap)
	}
}

// A table is never wider than the terminal, and loses nothing on a wide one.
func TestTablesFit(t *testing.T) {
	t.Parallel()
	names := []string{"A", "BETA", "C", "DELTA", "E"}
	rapid.Check(t, func(r *rapid.T) {
		header := make([]string, len(names))
		for i, name := range names {
			header[i] = name + rapid.SampledFrom([]string{"", ellipsis}).Draw(r, "text")
		}
		table := new(Main).list("", header...).leaveOut(rapid.Permutation(names[1:]).Draw(r, "leave out")...)
		for range rapid.IntRange(1, 5).Draw(r, "rows") {
			row := make([]string, len(names))
			for i := range row {
				row[i] = rapid.StringN(0, 30, -1).Draw(r, "cell")
			}
			table.row(row...)
		}
		table.measure()
		natural, most := table.total(), rapid.IntRange(4, 200).Draw(r, "columns")
		table.fit(most)
		var b strings.Builder
		for _, row := range table.rows {
			table.write(&b, row)
		}
		for line := range strings.Lines(b.String()) {
			if n := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); n > most {
				r.Fatalf("a line has %d columns on a terminal of %d: %q", n, most, line)
			}
		}
		if natural <= most && (table.total() != natural || table.leftOut() != nil) {
			r.Fatalf("the table has %d of %d columns on a terminal of %d", table.total(), natural, most)
		}
	})
}
