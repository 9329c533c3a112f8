// Package files carries out requests about the files of workspaces: it starts the program for files in the thread's sandbox, and passes
// content between that process and the caller.
//
//	Files.Handle ──► transfer ── package sandbox/files ──► process in the sandbox
//	      ◄── reply, or a piece of content ◄──┘
//
// A transfer is one operation, under an id of the caller's choice. Its messages may be sent again: the transfer answers a message that it
// has answered before in the same way, also for a while after its end. Content is in no stream, and in memory only for a window.
package files
