// Package local is the provider without isolation: its supervisor is an ordinary child process, and commands can do whatever the
// user can. Otherwise it behaves like every sandbox: process trees are killed whole, nothing is left behind, output is lossless, and
// the environment is built up.
//
//	Provider ──Create──► supervisor (its own session, a child) ──► processes, in the workspace folder itself
//	    │                    │ fd 3: listening socket
//	    └── run folder ──────┴─ <hash>.sock, supervisor-<hash>
//
// Sluice never selects it by default: a user has to name it, and gets [Warning].
package local

// Warning is what a user of this provider must be shown.
const Warning = "provider local isolates nothing: commands run as you, with your files, your network and your credentials in reach"
