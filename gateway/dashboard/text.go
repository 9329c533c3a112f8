package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/schemas"
)

// The classes of states. The style sheet has their colors and marks.
const (
	classRunning = "run"
	classWaiting = "wait"
	classOK      = "ok"
	classBad     = "bad"
	classKilled  = "warn"
	classQuiet   = "quiet"
	classUp      = "up" // ready for work
)

// functions are those of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"age": age, "span": duration, "ms": millis, "bytes": byteSize[int64], "size": byteSize[uint64], "clean": cleanAny, "short": shortenAny,
		"line": commandLine, "outcome": outcome, "class": processClass, "ran": ran, "service": serviceClass, "fill": fillOf,
		"sandbox": sandboxState, "sandboxState": sandboxState, "sandboxClass": sandboxClass,
		"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"utc":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"clock": func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"sum":   func(a, b float64) float64 { return a + b },
		"dec":   func(n int) int { return n - 1 },
		"base":  path.Base,
		"list": func(list []schemas.ProcessInfo, now time.Time, threads bool) processTable {
			return processTable{list, now, threads}
		},
		"on":     func(view any, s shell) onPage { return onPage{view, s} },
		"output": func(url string, hidden bool) outputBox { return outputBox{url, hidden} },
	}
}

// link is an anchor.
type link struct{ Text, URL string }

// The arguments of parts of pages.
type (
	processTable struct {
		List    []schemas.ProcessInfo
		Now     time.Time
		Threads bool // each row has its thread
	}
	onPage struct {
		Page any
		shell
	}
	outputBox struct {
		URL    string // of the stream; empty until a command is run
		Hidden bool
	}
	// fill is how full a stream is.
	fill struct {
		Width       float64 // from 0 to 100
		Text, Class string
	}
)

func fillOf(s schemas.StreamStatus) fill {
	if s.MaxBytes <= 0 {
		return fill{}
	}
	part := 100 * min(float64(s.Bytes)/float64(s.MaxBytes), 1)
	f := fill{Width: max(part, 1), Text: fmt.Sprintf("%.0f %%", part), Class: classOK}
	switch {
	case s.RefuseBytes > 0 && s.Bytes >= uint64(s.RefuseBytes):
		f.Class = classBad
	case part >= 80:
		f.Class = classKilled
	}
	return f
}

func cleanAny(v any) string { return clean(fmt.Sprint(v)) }

func shortenAny(limit int, v any) string { return shorten(limit, fmt.Sprint(v)) }

// clean makes text visible that would change how text around it is shown: control characters, and those that turn its direction.
func clean(s string) string {
	hidden := func(r rune) bool {
		return r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) ||
			r == '\u2028' || r == '\u2029'
	}
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == utf8.RuneError:
			b.WriteRune('\uFFFD')
		case hidden(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// shorten cuts a text to so many characters, on one line.
func shorten(limit int, s string) string {
	if len(s) > 4*limit {
		s = strings.ToValidUTF8(s[:4*limit], "")
	}
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > limit {
		return clean(string(r[:limit-1])) + "…"
	}
	return clean(s)
}

// commandLine is a command as a person would type it. The line of a shell stands for itself.
func commandLine(p schemas.ProcessInfo) string {
	base := p.Command[strings.LastIndex(p.Command, "/")+1:]
	if (base == "sh" || base == "bash") && len(p.Args) >= 2 && (p.Args[0] == "-c" || p.Args[0] == "-lc") {
		return p.Args[1] // the rest are arguments of the line
	}
	words := []string{p.Command}
	for _, a := range p.Args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&;|<>()*?`") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	if p.ArgsTruncated {
		words = append(words, "…")
	}
	return strings.Join(words, " ")
}

// outcome says how a process is, or how it ended.
func outcome(p schemas.ProcessInfo) string {
	if !p.Status.Ended() {
		return string(p.Status)
	}
	switch p.Reason {
	case schemas.ReasonTimedOut:
		return "timed out"
	case schemas.ReasonOOM:
		return "out of memory"
	case schemas.ReasonLost, schemas.ReasonRejected:
		return string(p.Reason)
	case schemas.ReasonKilled:
		if p.ExitCode != nil && *p.ExitCode > schemas.ExitSignalBase {
			return fmt.Sprintf("killed, signal %d", *p.ExitCode-schemas.ExitSignalBase)
		}
		return "killed"
	}
	if p.ExitCode == nil {
		return "ended"
	}
	return fmt.Sprintf("exit %d", *p.ExitCode)
}

func processClass(p schemas.ProcessInfo) string {
	switch {
	case p.Status == schemas.StatusRunning:
		return classRunning
	case p.Status == schemas.StatusStarting:
		return classWaiting
	case failed(p):
		return classBad
	case p.Status == schemas.StatusKilled:
		return classKilled
	default:
		return classOK
	}
}

// failed reports that a process needs a look: its end is neither success nor a signal, which someone sent.
func failed(p schemas.ProcessInfo) bool {
	return p.Status.Ended() && p.Status != schemas.StatusCompleted && p.Reason != schemas.ReasonKilled
}

// ran is how long a process has run.
func ran(p schemas.ProcessInfo, now time.Time) string {
	if p.Started.IsZero() {
		return ""
	}
	end := p.Ended
	if end.IsZero() {
		end = now
	}
	return duration(end.Sub(p.Started))
}

func sandboxState(s *schemas.Session) string {
	switch {
	case s == nil:
		return "no session"
	case s.Terminating:
		return "terminating"
	case s.Parked:
		return "parked"
	default:
		return cmp.Or(string(s.State), "not started")
	}
}

func sandboxClass(s *schemas.Session) string {
	switch {
	case s == nil || s.Parked:
		return classQuiet
	case s.State == schemas.SandboxRunning:
		return classUp
	case s.State == schemas.SandboxPending || s.State == schemas.SandboxCreating:
		return classWaiting
	case s.State == schemas.SandboxFailed:
		return classBad
	default:
		return classQuiet
	}
}

func serviceClass(s schemas.ServiceState) string {
	switch {
	case s == schemas.ServiceRunning:
		return classUp
	case s == schemas.ServiceFailed || s == schemas.ServiceUnhealthy:
		return classBad
	case s.Ended():
		return classQuiet
	default:
		return classWaiting
	}
}

// age is the time since, or until.
func age(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < -time.Second:
		return "in " + rough(-d)
	case d < 2*time.Second:
		return "now"
	default:
		return rough(d) + " ago"
	}
}

func rough(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	default:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
}

// duration is a time span with about three digits.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", d/time.Minute, d%time.Minute/time.Second)
	default:
		return fmt.Sprintf("%d h %02d min", d/time.Hour, d%time.Hour/time.Minute)
	}
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func byteSize[N int64 | uint64](n N) string {
	const unit = 1 << 10
	f, names := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; f >= unit && i < len(names)-1; i++ {
		f /= unit
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, names[i])
	}
	return fmt.Sprintf("%.1f %s", f, names[i])
}

// escapePath escapes a path of a workspace for a URL.
func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
