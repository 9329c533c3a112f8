package hooks

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// link is one hook of a chain.
type link struct {
	name     string
	hook     any
	run      run
	timeout  time.Duration
	critical bool
}

// specs are a template's hooks of a phase: its own, or where it says nothing of the phase, those that its Sync and Agent need.
func specs(t *schemas.Template, phase schemas.Phase) []schemas.HookSpec {
	if own, ok := t.Hooks[phase]; ok {
		return own
	}
	return Defaults(t)[phase]
}

// Defaults are the hooks that a template gets in each phase of which it says nothing.
func Defaults(t *schemas.Template) map[schemas.Phase][]schemas.HookSpec {
	out := make(map[schemas.Phase][]schemas.HookSpec)
	add := func(p schemas.Phase, name string) { out[p] = append(out[p], schemas.HookSpec{Builtin: name}) }
	if t.Sync != nil && (t.Sync.Init == nil || *t.Sync.Init) {
		add(schemas.PhaseColdStart, schemas.HookPull)
	}
	if t.Agent != nil {
		add(schemas.PhaseMessage, schemas.HookSave)
		add(schemas.PhaseStreamFinish, schemas.HookSave)
		add(schemas.PhaseStreamFinish, schemas.HookAddTokens)
	}
	if t.Sync != nil {
		add(schemas.PhaseStreamFinish, schemas.HookPush)
		add(schemas.PhaseTerminate, schemas.HookPush)
	}
	if t.Agent != nil {
		add(schemas.PhaseTerminate, schemas.HookCleanUp)
	}
	return out
}

// links composes a template's chain of a phase. Errors: invalid_argument.
func (c *Chains) links(t *schemas.Template, phase schemas.Phase) ([]link, error) {
	wanted := specs(t, phase)
	if len(wanted) == 0 {
		return nil, nil
	}
	out := make([]link, 0, len(wanted))
	taken := make(map[string]int, len(wanted))
	for i := range wanted {
		l, err := c.link(t, phase, &wanted[i])
		if err != nil {
			return nil, fmt.Errorf("template %s: hooks: %s[%d]: %w", t.Name, phase, i, err)
		}
		if taken[l.name]++; taken[l.name] > 1 {
			l.name = fmt.Sprintf("%s#%d", l.name, taken[l.name])
		}
		out = append(out, l)
	}
	return out, nil
}

func (c *Chains) link(t *schemas.Template, phase schemas.Phase, s *schemas.HookSpec) (link, error) {
	l := link{name: s.Name, timeout: hookTimeout, critical: phase == schemas.PhaseColdStart}
	var kind string
	var err error
	switch count := kinds(s); {
	case count != 1:
		return l, schemas.Errorf(schemas.CodeInvalidArgument, "a hook is one of builtin, command, subject and url; this one is %d of them", count)
	case s.Builtin != "":
		kind = s.Builtin
		l.hook, err = c.builtin(t, s.Builtin)
		if s.Builtin == schemas.HookPull || s.Builtin == schemas.HookPush {
			l.timeout = syncTimeout
		}
	case len(s.Command) > 0:
		kind = "command:" + clip(s.Command[0])
		l.hook, err = commandHook(s)
	case s.Subject != "":
		kind = "nats:" + s.Subject
		l.hook, err = c.subjectHook(s)
	default:
		kind = "http:" + shownURL(s.URL)
		l.hook, err = c.urlHook(s)
	}
	if err != nil {
		return l, err
	}
	if l.run = method(l.hook, phase); l.run == nil {
		return l, schemas.Errorf(schemas.CodeInvalidArgument, "hook %s does nothing in the phase %s", kind, phase)
	}
	if l.name == "" {
		l.name = kind
	}
	if s.TimeoutMS < 0 || s.TimeoutMS > maxTimeout.Milliseconds() {
		return l, schemas.Errorf(schemas.CodeInvalidArgument, "timeout_ms: %d is not between 0 and %d", s.TimeoutMS, maxTimeout.Milliseconds())
	}
	if s.TimeoutMS > 0 {
		l.timeout = time.Duration(s.TimeoutMS) * time.Millisecond
	}
	if s.Critical != nil {
		l.critical = *s.Critical
	}
	return l, nil
}

// maxTimeout is the longest a hook may be given.
const maxTimeout = 24 * time.Hour

// kinds counts the kinds that a spec is of.
func kinds(s *schemas.HookSpec) (count int) {
	for _, set := range []bool{s.Builtin != "", len(s.Command) > 0, s.Subject != "", s.URL != ""} {
		if set {
			count++
		}
	}
	return count
}

// shownURL is a URL without what may be secret in it.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "…"
	}
	return clip(u.Host + strings.TrimSuffix(u.Path, "/"))
}
