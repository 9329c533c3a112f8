// Package client is the Go SDK: everything that talks to Sluice goes through it.
//
//	Client.Exec ───────► Result                 (a non-zero exit is a result, not an error)
//	Client.ExecStream ─► Execution.Events ───► output as it runs, then the Result
//	Client.Logs ───────► Chunk, Chunk, …        from any sequence, live or afterwards
//	Client.Events ─────► Event, Event, …
//	Client.Signal, Client.Kill, Client.Result, Client.Processes
//
// Errors carry a code: errors.Is(err, schemas.ErrConflict) and its like tell them apart.
package client
