package hooks

import (
	"context"
	"encoding/json"
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

// Defaults returns the hooks of a template in each phase for which it lists none: those that its Sync and Agent need.
func Defaults(t *schemas.Template) map[schemas.Phase][]schemas.HookSpec {
	out := make(map[schemas.Phase][]schemas.HookSpec)
	add := func(p schemas.Phase, name string) { out[p] = append(out[p], schemas.HookSpec{Builtin: name}) }
	if t.Workspace != nil || t.Sync != nil && (t.Sync.Init == nil || *t.Sync.Init) {
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

// links returns a template's hooks of a phase. Errors: invalid_argument, and unavailable when the worker lacks a part.
func (c *Chains) links(t *schemas.Template, phase schemas.Phase) ([]link, error) {
	specs, listed := t.Hooks[phase]
	if !listed {
		specs = Defaults(t)[phase]
	}
	if len(specs) == 0 {
		return nil, nil
	}
	out := make([]link, 0, len(specs))
	used := make(map[string]int, len(specs))
	for i := range specs {
		path := fmt.Sprintf("hooks.%s[%d]", phase, i)
		if err := specs[i].Validate(path); err != nil {
			return nil, fmt.Errorf("template %s: %w", t.Name, err)
		}
		l, err := c.link(t, phase, path, &specs[i])
		if err != nil {
			return nil, fmt.Errorf("template %s: %s: %w", t.Name, path, err)
		}
		if used[l.name]++; used[l.name] > 1 {
			l.name = fmt.Sprintf("%s#%d", l.name, used[l.name])
		}
		out = append(out, l)
	}
	return out, nil
}

// link builds a hook from a valid spec. path is its place in the template.
func (c *Chains) link(t *schemas.Template, phase schemas.Phase, path string, s *schemas.HookSpec) (link, error) {
	l := link{name: s.Name, timeout: hookTimeout, critical: phase == schemas.PhaseColdStart}
	var kind string
	var err error
	switch {
	case s.Builtin != "":
		kind = s.Builtin
		l.hook, err = c.builtin(t, s.Builtin)
		if s.Builtin == schemas.HookPull || s.Builtin == schemas.HookPush {
			l.timeout = syncTimeout
		}
	case len(s.Command) > 0:
		kind = "command:" + clip(s.Command[0])
		l.hook = commandHook(s.Command)
	case s.Subject != "":
		kind = "nats:" + s.Subject
		l.hook, err = c.subjectHook(path, s.Subject, c.ask)
	case s.Publish != "":
		kind = "publish:" + s.Publish
		l.hook, err = c.subjectHook(path, s.Publish, c.send)
	default:
		kind = "http:" + withoutQuery(s.URL)
		l.hook, err = c.urlHook(s)
	}
	if err != nil {
		return l, err
	}
	if l.run = methodFor(l.hook, phase); l.run == nil {
		return l, schemas.Errorf(schemas.CodeInvalidArgument, "hook %s does not support phase %s", kind, phase)
	}
	if l.name == "" {
		l.name = kind
	}
	if s.TimeoutMS > 0 {
		l.timeout = time.Duration(s.TimeoutMS) * time.Millisecond
	}
	if s.Critical != nil {
		l.critical = *s.Critical
	}
	return l, nil
}

// withoutQuery returns the host and path of a URL. Its query may hold a secret.
func withoutQuery(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "…"
	}
	return clip(u.Host + strings.TrimSuffix(u.Path, "/"))
}

// commandHook runs a command in the sandbox, with the data on its standard input.
func commandHook(command []string) any {
	return everyPhase(func(ctx context.Context, call *Call) error {
		if call.Exec == nil {
			return schemas.Errorf(schemas.CodeUnavailable, "no sandbox to run %s in", clip(command[0]))
		}
		body, err := encode(call)
		if err != nil {
			return err
		}
		return call.Exec(ctx, command, body)
	})
}

// subjectHook sends the data to a NATS subject.
func (c *Chains) subjectHook(path, subject string, send func(context.Context, schemas.HookMessage) error) (any, error) {
	if c.cfg.Asker == nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "subject: this worker sends nothing to NATS for hooks")
	}
	return everyPhase(func(ctx context.Context, call *Call) error {
		body, err := encode(call)
		if err != nil {
			return err
		}
		return send(ctx, schemas.HookMessage{Subject: subject, ID: call.Occasion + "." + path, Origin: call.Origin, Body: body})
	}), nil
}

func (c *Chains) ask(ctx context.Context, m schemas.HookMessage) error {
	reply, err := c.cfg.Asker.Ask(ctx, m)
	if err != nil {
		return err
	}
	return replyError(reply)
}

func (c *Chains) send(ctx context.Context, m schemas.HookMessage) error {
	return c.cfg.Asker.Post(ctx, m)
}

// encode returns the data as hooks outside the worker receive it.
func encode(call *Call) ([]byte, error) {
	body, err := json.Marshal(&call.HookData)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode the hook's data: %w", err)
	}
	return append(body, '\n'), nil // read(1) of a shell fails without it
}

// replyError returns the error in a reply; nil for an empty reply, and for the ack of a stream that has stored the request.
func replyError(reply []byte) error {
	if len(reply) == 0 {
		return nil
	}
	if len(reply) > schemas.MaxControlBytes {
		return schemas.Errorf(schemas.CodeTooLarge, "the reply is %d bytes: it must be empty, or an error of at most %d bytes", len(reply), schemas.MaxControlBytes)
	}
	var r struct {
		schemas.Error
		Stream  string `json:"stream"`
		Seq     uint64 `json:"seq"`
		Refused *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	err := json.Unmarshal(reply, &r)
	switch {
	case err == nil && r.Code != "":
		return schemas.Errorf(r.Code, "the hook replied: %s", clip(r.Message))
	case err == nil && r.Refused != nil:
		return schemas.Errorf(schemas.CodeUnavailable, "the stream of the subject refused the message: %s", clip(r.Refused.Description))
	case err == nil && r.Stream != "" && r.Seq > 0:
		return nil
	default:
		return schemas.Errorf(schemas.CodeInternal, "the reply is neither empty, nor the ack of a stream, nor an error of the form {code, message}")
	}
}
