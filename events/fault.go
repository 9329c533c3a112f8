package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Server error codes that carry a meaning for Sluice; see nats-server's errors.json.
const (
	errWrongLastSequence     jetstream.ErrorCode = 10071
	errWrongLastInFlight     jetstream.ErrorCode = 10164 // of a replicated stream: the one that came first is not stored yet
	errAccountExceeded       jetstream.ErrorCode = 10002
	errInsufficientResources jetstream.ErrorCode = 10023
	errInsufficientMemory    jetstream.ErrorCode = 10028
	errInsufficientStorage   jetstream.ErrorCode = 10047
	errMessageTooLarge       jetstream.ErrorCode = 10054
	errStoreFailed           jetstream.ErrorCode = 10077
)

// wrap gives an error of nats.go its code and says what was being done.
func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*schemas.Error](err); ok {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return schemas.Errorf(faultCode(err), "%s: %w", doing, err)
}

func faultCode(err error) schemas.Code {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch api.ErrorCode {
		case errWrongLastSequence, errWrongLastInFlight:
			return schemas.CodeConflict
		case errAccountExceeded, errInsufficientResources, errInsufficientMemory, errInsufficientStorage, errStoreFailed:
			return schemas.CodeLimitExceeded
		case errMessageTooLarge:
			return schemas.CodeTooLarge
		case jetstream.JSErrCodeMessageNotFound:
			return schemas.CodeNotFound
		case jetstream.JSErrCodeStreamNotFound:
			return schemas.CodeUnavailable // not set up: nothing is known of what was asked for
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
