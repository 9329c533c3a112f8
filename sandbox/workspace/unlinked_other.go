//go:build !linux

package workspace

// Unlinked is not supported: it returns 0.
func Unlinked(string, int) int64 { return 0 }
