package hooks

import (
	"context"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/sluice-dev/sluice/schemas"
)

// subjectHook asks a NATS subject. The answer is empty, or an Error.
func (c *Chains) subjectHook(s *schemas.HookSpec) (any, error) {
	if c.cfg.Asker == nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "subject: this worker asks no NATS subjects")
	}
	if err := checkSubject(s.Subject); err != nil {
		return nil, err
	}
	subject := s.Subject
	return everyPhase(func(ctx context.Context, call *Call) error {
		body, err := encode(call)
		if err != nil {
			return err
		}
		answer, err := c.cfg.Asker.Ask(ctx, subject, body)
		if err != nil {
			return err
		}
		return readAnswer(answer)
	}), nil
}

// checkSubject refuses what is no subject to ask, and those by which a worker, with its greater rights, would speak to the NATS server
// or to Sluice itself.
func checkSubject(subject string) error {
	const own = "sluice."
	switch first, _, _ := strings.Cut(subject, "."); {
	case len(subject) > 256, strings.ContainsAny(subject, "*>"), strings.ContainsFunc(subject, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }),
		strings.HasPrefix(subject, "."), strings.HasSuffix(subject, "."), strings.Contains(subject, ".."):
		return schemas.Errorf(schemas.CodeInvalidArgument, "subject: %q is no subject to ask: words with dots between them, without wildcards, at most 256 bytes", clip(subject))
	case strings.HasPrefix(first, "$"), strings.HasPrefix(first, "_"), strings.HasPrefix(subject, own):
		return schemas.Errorf(schemas.CodeInvalidArgument, "subject: %q belongs to NATS or to Sluice: take one of your own", clip(subject))
	}
	return nil
}

// readAnswer turns an answer into the hook's end.
func readAnswer(answer []byte) error {
	if len(answer) == 0 {
		return nil
	}
	if len(answer) > schemas.MaxControlBytes {
		return schemas.Errorf(schemas.CodeTooLarge, "the answer has %d bytes: it may be empty, or an error of at most %d", len(answer), schemas.MaxControlBytes)
	}
	var e schemas.Error
	if err := json.Unmarshal(answer, &e); err != nil || e.Code == "" {
		return schemas.Errorf(schemas.CodeInternal, "the answer is neither empty nor an error of the form {code, message}")
	}
	return schemas.Errorf(e.Code, "the hook answered: %s", clip(e.Message))
}
