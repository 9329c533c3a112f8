package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Error codes of nats-server that map to a code of Sluice; see errors.json of nats-server.
const (
	errAccountExceeded       jetstream.ErrorCode = 10002
	errInsufficientResources jetstream.ErrorCode = 10023
	errInsufficientMemory    jetstream.ErrorCode = 10028
	errInsufficientStorage   jetstream.ErrorCode = 10047
	errMessageTooLarge       jetstream.ErrorCode = 10054
	errStoreFailed           jetstream.ErrorCode = 10077
	errNoPeers               jetstream.ErrorCode = 10005 // a cluster that starts does not know its servers yet
	errNoLeader              jetstream.ErrorCode = 10008 // a server that does not know the leader, for the cluster or for a stream
	errNotLeader             jetstream.ErrorCode = 10009
	errNotAssigned           jetstream.ErrorCode = 10010
)

// wrap adds the code and the operation to an error of nats.go.
func wrap(err error, operation string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*schemas.Error](err); ok {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if r := refusalIn(err); r.subject != "" {
		return fmt.Errorf("%s: %w", operation, r.err())
	}
	if noJetStream(err) {
		return schemas.Errorf(codeFor(err), "%s: %w: %s", operation, err, enableJetStream)
	}
	return schemas.Errorf(codeFor(err), "%s: %w", operation, err)
}

// enableJetStream is the way out where no JetStream answers.
const enableJetStream = "enable JetStream on the NATS server, or name the domain that has it with --js-domain when the server is a leaf node"

// noJetStream reports that the server has no JetStream for this account, or that the one of the domain does not answer. Requests to workers
// without an answer have errors of their own.
func noJetStream(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

func codeFor(err error) schemas.Code {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch api.ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence:
			return schemas.CodeConflict
		case jetstream.JSErrCodeStreamWrongLastSequenceConstant: // see inFlight
			return schemas.CodeUnavailable
		case errNoPeers, errNotLeader, errNotAssigned:
			return schemas.CodeUnavailable
		case jetstream.JSErrCodeJetStreamNotEnabledForAccount:
			return schemas.CodePermissionDenied
		case errAccountExceeded, errInsufficientResources, errInsufficientMemory, errInsufficientStorage, errStoreFailed:
			return schemas.CodeLimitExceeded
		case errMessageTooLarge:
			return schemas.CodeTooLarge
		case jetstream.JSErrCodeMessageNotFound:
			return schemas.CodeNotFound
		case jetstream.JSErrCodeStreamNotFound:
			return schemas.CodeUnavailable // no worker has set up the streams yet
		}
		if api.Code == 503 {
			return schemas.CodeUnavailable
		}
		return schemas.CodeInternal
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return schemas.CodeConflict
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrMsgNotFound):
		return schemas.CodeNotFound
	case errors.Is(err, jetstream.ErrInvalidKey):
		return schemas.CodeInvalidArgument
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		return schemas.CodeDeadlineExceeded
	case errors.Is(err, nats.ErrMaxPayload):
		return schemas.CodeTooLarge
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrPermissionViolation):
		return schemas.CodePermissionDenied
	default:
		return schemas.CodeUnavailable
	}
}

// isTransient reports whether a read that failed with err may succeed when it is tried again.
func isTransient(err error) bool {
	return errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded)
}

// callbackError marks an error as one that the caller's function returned, so that it is not retried or wrapped.
type callbackError struct{ err error }

func markCallback(err error) error {
	if err == nil {
		return nil
	}
	return &callbackError{err}
}

func (e *callbackError) Error() string { return e.err.Error() }

// retryRead calls catchUp until it succeeds: a server that has just restarted may not read its streams yet. It returns an error of
// fn as fn returned it, the error of ctx, and every error that is not transient. closed reports whether the connection is closed.
func retryRead[T any](ctx context.Context, closed func() bool, catchUp func(context.Context, func(T) error) error, fn func(T) error) error {
	for {
		err := catchUp(ctx, func(v T) error { return markCallback(fn(v)) })
		var own *callbackError
		switch {
		case errors.As(err, &own):
			return own.err
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil || !isTransient(err) || closed():
			return err
		}
		if err := sleep(ctx, reconnectCheck); err != nil {
			return err
		}
	}
}

// firstRead is retryRead for a reader that may have read nothing yet: without a stream it fails at once then, for there may never be one.
func firstRead[T any](ctx context.Context, closed func() bool, catchUp func(context.Context, func(T) error) error, fn func(T) error) error {
	var last error
	got := false // from a stream that has been there
	err := retryRead(ctx, func() bool { return errors.Is(last, errNoStream) && !got || closed() }, func(ctx context.Context, fn func(T) error) error {
		last = catchUp(ctx, func(v T) error {
			got = true
			return fn(v)
		})
		return last
	}, fn)
	if ctx.Err() != nil && (last == nil || isTransient(last)) {
		return last // it says what was read
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
