package dashboard

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// timeline is what happened in a thread, the newest first.
type timeline struct {
	Spans []*span
	Wide  bool // it has pauses, which are drawn short
}

// span is a row: something that took time, or happened at one.
type span struct {
	Kind, Label, Detail string
	URL                 string
	Class, Outcome      string
	Start, End          time.Time // End is zero while it goes on
	X, Width            float64   // of the bar, from 0 to 1000; a width of 0 for a moment
}

// Took is the duration of the row; empty for a moment.
func (s *span) Took(now time.Time) string {
	switch {
	case s.End.IsZero():
		return duration(now.Sub(s.Start))
	case s.End.After(s.Start):
		return duration(s.End.Sub(s.Start))
	default:
		return ""
	}
}

// timelineBuilder collects rows from events.
type timelineBuilder struct {
	spans []*span
	runs  map[string]*span // of processes, by id
	hooks map[string]*span // that run, by name and occasion
}

// newTimeline makes the rows of events. Processes that began before the events have a row too.
func newTimeline(events []*schemas.Event, processes []schemas.ProcessInfo, now time.Time) timeline {
	b := &timelineBuilder{runs: map[string]*span{}, hooks: map[string]*span{}}
	for _, p := range processes {
		b.run(p)
	}
	for _, ev := range events {
		b.add(ev)
	}
	t := timeline{Spans: b.spans}
	t.Wide = place(t.Spans, now)
	slices.SortStableFunc(t.Spans, func(a, b *span) int { return b.Start.Compare(a.Start) })
	return t
}

// add makes or completes the row of an event. Data that does not decode, such as that of a later version, makes none.
func (b *timelineBuilder) add(ev *schemas.Event) {
	kind, what, _ := strings.Cut(string(ev.Type), ".")
	switch kind {
	case "process":
		b.process(ev)
	case "hook":
		b.hook(ev)
	case "sync":
		b.sync(ev, what)
	case "session", "message", "stream":
		b.moment(ev, kind, what)
	case "sandbox", "coldstart":
		b.sandbox(ev)
	case "service":
		var s schemas.Service
		if ev.Decode(&s) == nil {
			b.instant(ev, "service", s.Name+" "+what, "", serviceClass(s.State))
		}
	case "limit", "validation":
		var e schemas.Error
		if ev.Decode(&e) == nil {
			b.instant(ev, kind, strings.ReplaceAll(string(ev.Type), ".", " "), e.Error(), classBad)
		}
	case "log":
		b.instant(ev, "log", "output is missing", "", classKilled)
	case "file":
		var f schemas.FileTransfer
		if ev.Decode(&f) == nil {
			b.took(ev, "files", what+" "+shorten(80, f.Path), f.DurationMS, classQuiet, byteSize(f.Bytes))
		}
	}
}

func (b *timelineBuilder) instant(ev *schemas.Event, kind, label, detail, class string) *span {
	s := &span{Kind: kind, Label: clean(label), Detail: shorten(300, detail), Class: class, Start: ev.Time, End: ev.Time}
	b.spans = append(b.spans, s)
	return s
}

// took makes the row of something that an event reports at its end.
func (b *timelineBuilder) took(ev *schemas.Event, kind, label string, ms float64, class, outcome string) *span {
	s := b.instant(ev, kind, label, "", class)
	s.Start, s.Outcome = ev.Time.Add(-millis(ms)), outcome
	return s
}

// process makes the row of a process that is in no list: it was cleaned up, or is older than those.
func (b *timelineBuilder) process(ev *schemas.Event) {
	if b.runs[ev.Process] != nil {
		if a := (schemas.Accepted{}); ev.Type == schemas.TypeProcessAccepted && ev.Decode(&a) == nil && a.Op == schemas.OpMessage {
			b.runs[ev.Process].Kind = "agent"
		}
		return
	}
	if !ev.Type.Terminal() {
		return
	}
	p, err := schemas.EndedProcess(ev)
	if err != nil {
		return
	}
	b.run(p)
}

// run makes the row of a process.
func (b *timelineBuilder) run(p schemas.ProcessInfo) *span {
	s := &span{
		Kind: "command", Label: shorten(120, commandLine(p)), URL: Path + "processes/" + url.PathEscape(p.Process), Class: processClass(p),
		Outcome: outcome(p), Start: cmp.Or(p.Started, p.Ended), End: p.Ended,
	}
	b.runs[p.Process] = s
	b.spans = append(b.spans, s)
	return s
}

func (b *timelineBuilder) hook(ev *schemas.Event) {
	var run schemas.HookRun
	if ev.Decode(&run) != nil {
		return
	}
	id := fmt.Sprint(run.Hook, " ", run.Phase, " ", run.Occasion)
	if ev.Type == schemas.TypeHookStarted {
		s := b.instant(ev, "hook", run.Hook, "", classRunning)
		s.Outcome, s.End = "running", time.Time{}
		b.hooks[id] = s
		return
	}
	s := b.hooks[id]
	if s == nil {
		s = b.instant(ev, "hook", run.Hook, "", classOK)
	}
	delete(b.hooks, id)
	s.Start, s.End, s.Class, s.Outcome = ev.Time.Add(-millis(run.DurationMS)), ev.Time, classOK, string(run.Phase)
	if ev.Type == schemas.TypeHookFailed {
		s.Class, s.Outcome, s.Detail = classBad, "failed", shorten(300, errorText(run.Error))
	}
}

func (b *timelineBuilder) sync(ev *schemas.Event, what string) {
	var r schemas.SyncReport
	if ev.Decode(&r) != nil {
		return
	}
	class, outcome := classOK, fmt.Sprintf("%d files, %s", r.Files, byteSize(r.Bytes))
	if ev.Type == schemas.TypeSyncConflict {
		class, outcome = classBad, fmt.Sprintf("%d conflicts", len(r.Conflicts))
	}
	s := b.took(ev, "sync", "workspace "+what, r.DurationMS, class, outcome)
	if s.Detail = r.Version; len(r.Conflicts) > 0 {
		s.Detail = shorten(300, strings.Join(r.Conflicts, ", "))
	}
}

func (b *timelineBuilder) sandbox(ev *schemas.Event) {
	var start schemas.ColdStart
	var info schemas.SandboxInfo
	switch {
	case ev.Type == schemas.TypeColdStartFinished && ev.Decode(&start) == nil:
		b.took(ev, "sandbox", "sandbox started", start.SandboxMS+start.HooksMS, classOK, "ready")
	case ev.Type == schemas.TypeSandboxFailed && ev.Decode(&info) == nil:
		b.instant(ev, "sandbox", "sandbox failed", errorText(info.Error), classBad)
	case ev.Type == schemas.TypeSandboxEnding && ev.Decode(&info) == nil:
		b.instant(ev, "sandbox", "sandbox does not end", errorText(info.Error), classBad)
	case ev.Type == schemas.TypeSandboxCompleted || ev.Type == schemas.TypeSandboxTerminated:
		b.instant(ev, "sandbox", strings.ReplaceAll(string(ev.Type), ".", " "), "", classQuiet)
	}
}

// moment makes the row of an event of the session or the conversation.
func (b *timelineBuilder) moment(ev *schemas.Event, kind, what string) {
	var finish schemas.StreamFinish
	var m schemas.Message
	var s schemas.Session
	switch {
	case ev.Type == schemas.TypeStreamFinished:
		if ev.Decode(&finish) == nil && len(finish.Failed) > 0 {
			b.instant(ev, "message", "hooks of the message failed", strings.Join(finish.Failed, ", "), classBad)
		}
	case ev.Type == schemas.TypeMessageSaved:
		if ev.Decode(&m) == nil {
			b.instant(ev, kind, "message of the "+string(m.Role), "", classQuiet)
		}
	case ev.Type == schemas.TypeSessionReused:
	case ev.Decode(&s) == nil && len(s.FailedHooks) > 0:
		b.instant(ev, kind, kind+" "+what, "failed hooks: "+strings.Join(s.FailedHooks, ", "), classBad)
	default:
		b.instant(ev, kind, kind+" "+what, "", classQuiet)
	}
}

// place computes where bars are. Pauses in which nothing ran are drawn short, whatever they lasted; it reports whether there are any.
func place(spans []*span, now time.Time) (pauses bool) {
	sorted := slices.Clone(spans)
	slices.SortFunc(sorted, func(a, b *span) int { return a.Start.Compare(b.Start) })
	end := func(s *span) time.Time { return cmp.Or(s.End, now) }
	type segment struct {
		from, to time.Time
		x, width float64
	}
	var busy []segment
	const pause = 2 * time.Second
	for _, s := range sorted {
		if n := len(busy); n > 0 && s.Start.Sub(busy[n-1].to) < pause {
			if e := end(s); e.After(busy[n-1].to) {
				busy[n-1].to = e
			}
			continue
		}
		busy = append(busy, segment{from: s.Start, to: end(s)})
	}
	var total time.Duration
	for _, g := range busy {
		total += g.to.Sub(g.from)
	}
	if total <= 0 {
		total = time.Millisecond
	}
	const full, gap, least = 1000.0, 8.0, 12.0 // what a pause and a segment take at least
	room := max(full-float64(len(busy)-1)*gap-float64(len(busy))*least, 100)
	x := 0.0
	for i := range busy {
		busy[i].x, busy[i].width = x, least+room*float64(busy[i].to.Sub(busy[i].from))/float64(total)
		x += busy[i].width + gap
	}
	scale := full / max(x-gap, 1)
	i := 0
	for _, s := range sorted {
		for i < len(busy)-1 && s.Start.After(busy[i].to) {
			i++
		}
		g := busy[i]
		at := func(t time.Time) float64 {
			part := float64(t.Sub(g.from)) / float64(max(g.to.Sub(g.from), time.Nanosecond))
			return scale * (g.x + g.width*min(max(part, 0), 1))
		}
		s.X = min(at(s.Start), full-4)
		s.Width = max(at(end(s))-s.X, 4)
	}
	return len(busy) > 1
}
