package mcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/schemas"
)

// metaError is the field of a result's _meta that has its error, a [schemas.Error], for programs.
const metaError = "sluice/error"

// coded returns an error with a code, also for the end of a context.
func coded(err error) *schemas.Error {
	e, ok := errors.AsType[*schemas.Error](err)
	switch {
	case ok:
		return e
	case errors.Is(err, context.Canceled):
		return schemas.Errorf(schemas.CodeCanceled, "the call was canceled")
	case errors.Is(err, context.DeadlineExceeded):
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "the call did not end in time")
	default:
		return schemas.AsError(err)
	}
}

// complete writes the error of a result for a model, and for programs. It returns the code; empty for a result without an error.
func complete(r *sdk.CallToolResult) schemas.Code {
	if !r.IsError {
		return ""
	}
	e, ok := errors.AsType[*schemas.Error](r.GetError())
	if !ok { // the arguments do not fit the schema
		e = schemas.Errorf(schemas.CodeInvalidArgument, "%w", r.GetError())
	}
	r.Content = []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("%s: %s\nNext: %s", e.Code, cut(clean(e.Error()), maxMessageText), nextStep(e.Code))}}
	r.Meta = sdk.Meta{metaError: map[string]any{"code": e.Code, "details": e.Details, "retryable": e.Code.Retryable()}}
	return e.Code
}

// maxMessageText is the most bytes of the text of an error: it may repeat an argument.
const maxMessageText = 2 << 10

// nextStep says what a model does about an error.
func nextStep(code schemas.Code) string {
	switch code {
	case schemas.CodeInvalidArgument:
		return "correct the argument that the message names, by the schema of the tool. The same call fails again."
	case schemas.CodePolicyDenied:
		return "the operator forbids this command. Solve the task with another one, or tell the user; do not work around it."
	case schemas.CodeUnauthenticated, schemas.CodePermissionDenied:
		return "tell the user that access is refused. A file inside the sandbox may need another path or mode."
	case schemas.CodeNotFound:
		return "look at what exists, with list_files, search_files or list_processes, and correct the path or id."
	case schemas.CodeSessionExpired:
		return "call again: a new session starts. Processes of the old one have ended."
	case schemas.CodeConflict:
		return "look at the present state first: read the file again, or use another name."
	case schemas.CodeTooLarge:
		return "work in smaller pieces: read with offset and max_bytes, write with append."
	case schemas.CodeLimitExceeded:
		return "free space in the workspace, or stop processes with stop_process, then call again. A rate passes by itself: wait."
	case schemas.CodePoolExhausted, schemas.CodeUnavailable, schemas.CodeDeadlineExceeded:
		return "wait some seconds and call again. A command may have run: look with list_processes first."
	case schemas.CodeCanceled:
		return "nothing: the call was canceled, and its command does not run."
	case schemas.CodeLost:
		return "how the command ended is unknown. Look at its effects before you run it again."
	case schemas.CodeDamaged:
		return "tell the user: what is stored is not what was written."
	default:
		return "tell the user: this is a fault of Sluice, and the same call may fail again."
	}
}

// protocolError is an error of a request that is no call of a tool.
func protocolError(err error) error {
	e, code := coded(err), int64(jsonrpc.CodeInternalError)
	if e.Code == schemas.CodeInvalidArgument || e.Code == schemas.CodeNotFound {
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: fmt.Sprintf("%s: %s", e.Code, cut(clean(e.Error()), maxMessageText))}
}
