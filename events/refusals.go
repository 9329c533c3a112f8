package events

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// refusals ends requests that the server does not permit. Such a request has no answer: the server reports its subject to the connection
// alone, and the request would wait until its deadline.
type refusals struct {
	mu      sync.Mutex
	waiting map[*waitingRequest]struct{}
	inbox   error // why no answer can arrive; nil while the inbox is permitted
}

// waitingRequest is a request that has no answer yet.
type waitingRequest struct {
	subject string
	fail    context.CancelCauseFunc
}

func newRefusals() *refusals { return &refusals{waiting: make(map[*waitingRequest]struct{})} }

// options make a connection report to r.
func (r *refusals) options() []nats.Option {
	return []nats.Option{
		// Each operation returns its own error. The default handler would also print it to standard error.
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { r.report(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { r.reset() }),
		nats.PermissionErrOnSubscribe(true),
	}
}

// refusal is what the server does not permit. The zero value is no refusal.
type refusal struct {
	subject      string
	subscription bool // else publishing
}

// refusalIn returns the refusal that an error of a connection reports.
func refusalIn(err error) (r refusal) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return r
	}
	what, rest, _ := strings.Cut(err.Error(), `"`)
	quoted, _ := strconv.QuotedPrefix(`"` + rest) // the server quotes the subject as Go does
	r.subject, _ = strconv.Unquote(quoted)        // a text of another form is no refusal
	r.subscription = strings.HasSuffix(what, "Subscription to ")
	return r
}

func (r refusal) err() error {
	verb := "publish to"
	if r.subscription {
		verb = "subscribe to"
	}
	return schemas.Errorf(schemas.CodePermissionDenied, "NATS refuses to %s %q (%w): permit it for this user or account", verb, r.subject, nats.ErrPermissionViolation)
}

// report takes an error of the connection. One that refuses a subject fails the requests to it, one that refuses an inbox all.
func (r *refusals) report(err error) {
	found := refusalIn(err)
	if found.subject == "" {
		return
	}
	inbox := found.subscription && strings.HasPrefix(found.subject, inboxPrefix)
	r.mu.Lock()
	defer r.mu.Unlock()
	if inbox {
		r.inbox = found.err()
	}
	for w := range r.waiting {
		if inbox || (w.subject == found.subject && !found.subscription) {
			w.fail(found.err())
		}
	}
}

// reset forgets which inbox was refused: a new connection may have other permissions.
func (r *refusals) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inbox = nil
}

// watch returns a context that ends, with the refusal as its cause, when the server refuses a request to subject. done must be called.
func (r *refusals) watch(ctx context.Context, subject string) (_ context.Context, done func()) {
	ctx, fail := context.WithCancelCause(ctx)
	w := &waitingRequest{subject, fail}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inbox != nil {
		fail(r.inbox)
	}
	r.waiting[w] = struct{}{}
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, w)
		fail(nil)
	}
}

// refused returns err, or the refusal that ended ctx.
func refused(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, nats.ErrPermissionViolation) {
		return cause
	}
	return err
}

// watched calls ask, which sends a request to subject, with a context of watch. It returns the answer or the refusal. A request that
// cannot get an answer is not sent.
func watched[T any](ctx context.Context, r *refusals, subject string, ask func(context.Context) (T, error)) (v T, err error) {
	ctx, done := r.watch(ctx, subject)
	defer done()
	if err = ctx.Err(); err == nil {
		v, err = ask(ctx)
	}
	return v, refused(ctx, err)
}
