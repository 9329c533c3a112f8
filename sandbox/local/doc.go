// Package local is the provider that isolates nothing: its supervisor is a plain child process, and what runs under it can
// do whatever the user can. It gives everything else a sandbox has: whole trees are killed, nothing is left behind,
// output is lossless, the environment is built up.
//
//	Provider ──Create──► supervisor (own session, plain child) ──► processes, in the workspace folder itself
//	    │                    │ fd 3: listening socket
//	    └── run folder ──────┴─ <hash>.sock, supervisor-<hash>
//
// It is never chosen by itself: a caller asks for it by name, and is told [Warning].
package local

// Warning is what a user who chose this provider must be shown.
const Warning = "provider local isolates nothing: commands run as you, with your files, your network and your credentials in reach"
