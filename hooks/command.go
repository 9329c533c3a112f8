package hooks

import (
	"context"
	"encoding/json"

	"github.com/sluice-dev/sluice/schemas"
)

// commandHook runs a command in the sandbox, with the data on its standard input.
func commandHook(s *schemas.HookSpec) (any, error) {
	if s.Command[0] == "" {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "command: the program is missing")
	}
	command := s.Command
	return everyPhase(func(ctx context.Context, call *Call) error {
		if call.Exec == nil {
			return schemas.Errorf(schemas.CodeUnavailable, "there is no sandbox to run %s in", clip(command[0]))
		}
		body, err := encode(call)
		if err != nil {
			return err
		}
		return call.Exec(ctx, command, body)
	}), nil
}

// encode is the data as it leaves this worker.
func encode(call *Call) ([]byte, error) {
	body, err := json.Marshal(&call.HookData)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode the hook's data: %w", err)
	}
	return body, nil
}
