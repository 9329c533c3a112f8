// Package files is the host's side of the program for files, which runs inside sandboxes; see package sandbox/supervisor/files. It turns
// requests into commands, and what the program prints into replies. The host itself opens nothing in a workspace.
//
//	schemas.FileRequest ── Command ──► sandbox.Sandbox.Start ──► the program
//	schemas.FileEntry ◄── Entries, Outcome ◄── its output
package files
