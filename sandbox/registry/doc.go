// Package registry tracks a provider's sandboxes: in memory while the provider runs, and in one file each for the provider that
// runs after it.
//
//	Create ──► reserve the id ──► launch ──► Save: <run folder>/kept/<name>.json ──► greet the supervisor
//	Attach ──► orphans: the files without a sandbox in memory ──► reopen, or clean up
//	Detach, SIGKILL: the files stay          Remove, Close: the files go with their sandboxes
//
// A sandbox's file is written before its supervisor is greeted, so before the supervisor can run anything or stay without a
// connection. A supervisor that was never greeted exits by itself. The files are in a folder of mode 0700 that no sandbox sees.
package registry
