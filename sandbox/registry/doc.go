// Package registry is what every provider knows of its sandboxes: in memory while it runs, and in a file each for the provider
// that comes after it.
//
//	Create ──► reserve the id ──► launch ──► Save: <run folder>/kept/<name>.json ──► greet the supervisor
//	Attach ──► the files of no sandbox in memory ──► open again, or clean up
//	Leave, SIGKILL: the files stay          Forget, Close: they go with their sandboxes
//
// A file is there before its supervisor is greeted, that is, before it can run anything or would stay without a connection: a
// supervisor of which no file tells ends by itself. The files lie in a folder of mode 0700 that no sandbox sees.
package registry
