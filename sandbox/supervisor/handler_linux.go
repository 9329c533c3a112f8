//go:build amd64 || arm64

package supervisor

// handler returns the address of a signal handler that does nothing.
func handler() uintptr
