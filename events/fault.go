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
	errWrongLastSequence   jetstream.ErrorCode = 10071
	errInsufficientStorage jetstream.ErrorCode = 10047
	errInsufficientMemory  jetstream.ErrorCode = 10028
	errStoreFailed         jetstream.ErrorCode = 10077
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
		case errWrongLastSequence:
			return schemas.CodeConflict
		case errInsufficientStorage, errInsufficientMemory, errStoreFailed:
			return schemas.CodeLimitExceeded
		case jetstream.JSErrCodeStreamNotFound, jetstream.JSErrCodeMessageNotFound:
			return schemas.CodeNotFound
		}
		if api.Code == 503 {
			return schemas.CodeUnavailable
		}
		return schemas.CodeInternal
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return schemas.CodeConflict
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrMsgNotFound),
		errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return schemas.CodeNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return schemas.CodeDeadlineExceeded
	case errors.Is(err, nats.ErrMaxPayload):
		return schemas.CodeTooLarge
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrPermissionViolation):
		return schemas.CodePermissionDenied
	default:
		return schemas.CodeUnavailable
	}
}
