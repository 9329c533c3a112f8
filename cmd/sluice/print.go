package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/sluice-dev/sluice/schemas"
)

// printError prints an error to standard error, its code first: scripts decide by the code.
func (m *Main) printError(err error) {
	text := err.Error()
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		text = string(e.Code) + ": " + text
	}
	m.notice(text)
}

// notice prints a line to standard error that is not part of the output.
func (m *Main) notice(text string) { fmt.Fprintln(m.Stderr, "sluice: "+printable(text)) }

func (m *Main) printJSON(v any) error {
	enc := json.NewEncoder(m.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// printResult prints v as JSON, or by text.
func printResult[T any](m *Main, asJSON bool, v T, text func(*Main, T) error) error {
	if asJSON {
		return m.printJSON(v)
	}
	return text(m, v)
}

// jsonLines prints each value as one line of JSON.
func jsonLines[T any](m *Main) func(T) error {
	enc := json.NewEncoder(m.Stdout)
	enc.SetEscapeHTML(false)
	return func(v T) error { return enc.Encode(v) }
}

// table prints rows with aligned columns. Cells hold foreign text: each is made one line, and an empty one is a dash.
type table struct{ w *tabwriter.Writer }

func (m *Main) table(header ...string) *table {
	t := &table{tabwriter.NewWriter(m.Stdout, 0, 0, 2, ' ', 0)}
	if len(header) > 0 {
		t.row(header...)
	}
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = cmp.Or(oneLine(c), "-")
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) print() error { return t.w.Flush() }

// printable replaces what could drive the terminal: control characters, and the invisible characters that reverse the direction
// of text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// oneLine is printable text without line breaks and tabs: it cannot look like a row of its own.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, printable(s))
}

// maxShownCommand is how many characters of a command a table shows.
const maxShownCommand = 60

// commandLine is a command on one line, cut to fit a table.
func commandLine(command string, args []string) string {
	s := oneLine(strings.Join(append([]string{command}, args...), " "))
	if r := []rune(s); len(r) > maxShownCommand {
		return string(r[:maxShownCommand]) + "…"
	}
	return s
}

// localTime is a time for a table; empty for the zero time.
func localTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// age is the time since t, rounded for a table: 42s, 7m, 3h, 5d.
func age(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// byteSize is a number of bytes with a binary unit.
func byteSize(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
