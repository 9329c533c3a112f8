package client

import (
	"errors"

	"github.com/sluice-dev/sluice/schemas"
)

// Errors of a [Sandbox], for errors.Is. Each comes with a cause that has a code; see [schemas.CodeOf].
var (
	// ErrSandboxFailed says that the sandbox could not be created, or that its cold start failed. The cause is why.
	ErrSandboxFailed = errors.New("the sandbox failed")
	// ErrSandboxTerminated says that a request ended the sandbox, which did not come from this handle. The code is session_expired.
	ErrSandboxTerminated = errors.New("the sandbox was terminated")
	// ErrSandboxNotRunning says that the handle has stopped the sandbox, or that its main command has ended. The code is session_expired.
	ErrSandboxNotRunning = errors.New("the sandbox is not running")
	// ErrSessionExpired says that a session has ended. A sandbox returns it only with [WithoutRenewal].
	ErrSessionExpired error = schemas.ErrSessionExpired
)
