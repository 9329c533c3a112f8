package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"

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
	if r := reflect.ValueOf(v); asJSON && r.Kind() == reflect.Slice && r.IsNil() {
		return m.printJSON([]any{}) // a list without entries is not null
	}
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

// printEach reads values and prints each. When there are none, it prints the notice empty instead, except among JSON.
func printEach[T any](m *Main, asJSON bool, empty string, print func(T) error, read func(func(T) error) error) error {
	n := 0
	err := read(func(v T) error {
		n++
		return print(v)
	})
	if err == nil && n == 0 && !asJSON {
		m.notice(empty)
	}
	return err
}

// terminal reports whether w is a terminal, and whether it shows colours and lets the cursor move.
func (m *Main) terminal(w io.Writer) (is, colours bool) {
	f, ok := w.(*os.File)
	is = ok && term.IsTerminal(int(f.Fd()))
	return is, is && m.Getenv("TERM") != "dumb" && m.Getenv("NO_COLOR") == ""
}

// count is a number with its noun: 1 file, 2 files.
func count[T int | int64 | uint64](n T, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

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

// commandLine is a command on one line.
func commandLine(command string, args []string) string {
	return oneLine(strings.Join(append([]string{command}, args...), " "))
}

// narrow reports whether standard output is a terminal on which an event does not fit into a line.
func (m *Main) narrow() bool {
	most := m.width()
	return most > 0 && most <= 100
}

// eventTime is a time for events and messages, with its date where there is room.
func (m *Main) eventTime(t time.Time) string {
	if m.narrow() {
		return t.Local().Format("15:04:05.000")
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
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
