package main

import (
	"cmp"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/rivo/uniseg"
	"golang.org/x/term"

	"github.com/sluice-dev/sluice/schemas"
)

// Bounds of a table.
const (
	columnGap    = 2       // spaces between two columns
	minText      = 16      // columns that a column of text keeps while others can be left out
	minCell      = 4       // columns that any column keeps
	maxCellBytes = 4 << 10 // of a cell, also where nothing is cut to fit: --json has all of it
	ellipsis     = "…"
)

// table prints rows with aligned columns that fit the terminal. Off a terminal, and with --wide, nothing is cut. Cells hold foreign text:
// each is made one line, and an empty one is a dash.
type table struct {
	main    *Main
	empty   string // the notice in place of a table without rows
	columns []column
	rows    [][]string
	later   []string // the columns that are left out on a narrow terminal, the first one first
}

// column is one column of a table.
type column struct {
	name  string
	text  bool // it may be cut
	width int  // to print it with; hidden for not at all
}

const hidden = -1

// table is a table without a header. On a terminal its last column is wrapped: nothing is cut or left out.
func (m *Main) table() *table { return &table{main: m} }

// list is a table with a header. A column whose name ends with … holds text that may be cut. Without a row, it is the notice empty, and
// standard output has nothing.
func (m *Main) list(empty string, header ...string) *table {
	t := &table{main: m, empty: empty}
	for _, name := range header {
		name, text := strings.CutSuffix(name, ellipsis)
		t.columns = append(t.columns, column{name: name, text: text})
	}
	return t
}

// leaveOut names the columns that a narrow terminal does without, the first one first.
func (t *table) leaveOut(names ...string) *table {
	t.later = names
	return t
}

func (t *table) row(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cmp.Or(boundedLine(c), "-")
	}
	t.rows = append(t.rows, row)
}

func (t *table) print() error {
	if len(t.rows) == 0 {
		if t.empty != "" {
			t.main.notice(t.empty)
		}
		return nil
	}
	headed := len(t.columns) > 0
	if !headed {
		t.columns = make([]column, len(t.rows[0]))
	}
	t.measure()
	var b strings.Builder
	if headed {
		t.fit(t.main.width())
		names := make([]string, len(t.columns))
		for i, c := range t.columns {
			names[i] = c.name
		}
		t.write(&b, names)
	} else if most := t.main.width(); most > 0 {
		last := len(t.columns) - 1
		t.shrink(last, minText, most)
		for i := range slices.Backward(t.columns[:last]) {
			t.shrink(i, minCell, most)
		}
	}
	for _, r := range t.rows {
		if headed {
			t.write(&b, r)
			continue
		}
		end := len(r) - 1
		for i, line := range wrap(r[end], t.columns[end].width) {
			if i > 0 {
				r = make([]string, len(r))
			}
			r[end] = line
			t.write(&b, r)
		}
	}
	if _, err := io.WriteString(t.main.Stdout, b.String()); err != nil {
		return err
	}
	if out := t.leftOut(); len(out) > 0 {
		t.main.notice("no room for " + strings.Join(out, ", ") + ": --wide shows all columns")
	}
	return nil
}

// measure gives each column the width of its widest cell.
func (t *table) measure() {
	for i := range t.columns {
		c := &t.columns[i]
		c.width = uniseg.StringWidth(c.name)
		for _, r := range t.rows {
			c.width = max(c.width, uniseg.StringWidth(r[i]))
		}
	}
}

// total is the width of a row.
func (t *table) total() int {
	n := -columnGap
	for _, c := range t.columns {
		if c.width != hidden {
			n += c.width + columnGap
		}
	}
	return n
}

// shrink makes a column as narrow as the table needs it to be as wide as most, and keeps this much of it at least.
func (t *table) shrink(i, least, most int) {
	c := &t.columns[i]
	c.width = max(min(c.width, least), c.width-max(0, t.total()-most))
}

// fit makes the table as wide as most: it cuts text, then leaves columns out, then cuts what is left. 0 is any width.
func (t *table) fit(most int) {
	if most <= 0 {
		return
	}
	natural := make([]int, len(t.columns))
	for i, c := range t.columns {
		natural[i] = c.width
	}
	shrink := func(least int, all bool) {
		for i, c := range slices.Backward(t.columns) {
			if c.width != hidden && (c.text || all) {
				t.shrink(i, least, most)
			}
		}
	}
	shrink(minText, false)
	for _, name := range t.later {
		if t.total() <= most {
			break
		}
		t.columns[slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })].width = hidden
	}
	shrink(minCell, false)
	shrink(minCell, true)
	for i := range t.columns { // what the columns left out leave goes to the text
		if c := &t.columns[i]; c.text && c.width != hidden {
			c.width += max(0, min(natural[i]-c.width, most-t.total()))
		}
	}
}

// leftOut are the columns with a value that are not printed.
func (t *table) leftOut() (names []string) {
	for i, c := range t.columns {
		if c.width == hidden && slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != "-" }) {
			names = append(names, c.name)
		}
	}
	return names
}

// write writes one line of cells, without spaces at its end.
func (t *table) write(b *strings.Builder, cells []string) {
	var line strings.Builder
	for i, c := range t.columns {
		if c.width == hidden {
			continue
		}
		cell := cut(cells[i], c.width)
		line.WriteString(cell + strings.Repeat(" ", max(0, c.width-uniseg.StringWidth(cell))+columnGap))
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

// cut is the beginning of s that fits into these columns of a terminal, where a character may take two, with … for the rest.
func cut(s string, most int) string {
	if uniseg.StringWidth(s) <= most {
		return s
	}
	return s[:fitting(s, most-1)] + ellipsis
}

// fitting is how many bytes of s fit into these columns of a terminal.
func fitting(s string, most int) int {
	n, state := 0, -1
	for rest := s; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if most -= w; most < 0 {
			break
		}
		n += len(cluster)
	}
	return n
}

// wrap breaks s into lines of at most these columns, at spaces where there are some.
func wrap(s string, most int) (lines []string) {
	for uniseg.StringWidth(s) > most {
		n := fitting(s, most)
		if n == 0 { // one character is wider than a line
			cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(s, -1)
			n = len(cluster)
		}
		if space := strings.LastIndexByte(s[:n], ' '); n < len(s) && s[n] != ' ' && space > 0 {
			n = space
		}
		lines, s = append(lines, strings.TrimRight(s[:n], " ")), strings.TrimLeft(s[n:], " ")
	}
	if s != "" || lines == nil {
		lines = append(lines, s)
	}
	return lines
}

// width is how many columns the terminal on standard output has; 0 for no bound: it is no terminal, or --wide was given.
func (m *Main) width() int {
	f, ok := m.Stdout.(*os.File)
	if m.wide || !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	cols, _, err := term.GetSize(int(f.Fd()))
	if err != nil || cols < 1 {
		return schemas.DefaultCols
	}
	return cols
}

// line prints a line of a stream of lines, cut to the terminal.
func (m *Main) line(s string) error {
	s = boundedLine(s)
	if most := m.width(); most > 0 {
		s = cut(s, most)
	}
	_, err := io.WriteString(m.Stdout, s+"\n")
	return err
}

// boundedLine is text on one line, of at most maxCellBytes.
func boundedLine(s string) string {
	if len(s) > maxCellBytes {
		s = strings.ToValidUTF8(s[:maxCellBytes], "") + ellipsis
	}
	return oneLine(s)
}
