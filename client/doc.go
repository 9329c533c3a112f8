// Package client is the Go SDK. Every program that uses Sluice uses it, the command line included.
//
//	Client.Exec ───────► Result                 (a non-zero exit is a result, not an error)
//	Client.ExecStream ─► Execution.Events ───► output while it runs, then the Result
//	Client.Message ────► Result                 (the answer of the thread's agent)
//	Client.Logs ───────► Chunk, Chunk, …        from any sequence, live or later
//	Client.Events ─────► Event, Event, …
//	Client.Messages ───► Message, Message, …
//	Client.StartProcess, Client.Process ─► Process.Wait, Info, Result, WriteStdin, Signal, Kill, …
//	Client.Files ──────► WriteFile, ReadFile, List, CopyIn, CopyOut, Upload, Download, Watch, …
//	Client.Services ───► Start, Stop, Get, List, Logs
//	Client.ForwardAll, Client.AttachProcess, Client.Processes
//	Client.CreateSession, Client.Session, Client.Sessions, Client.StopSession, Client.RenewSession
//	Run, Attach, Client.Sandboxes ─► Sandbox: Start, Wait, Exec, Files, Stop, Close
//	Wait ──────────────► those of several processes or sandboxes that are done
//
// Discover finds the server as the command line does; Connect takes its URL. Package local opens one in the program itself.
//
// Errors carry a code: test them with errors.Is(err, schemas.ErrConflict) and the like.
package client
