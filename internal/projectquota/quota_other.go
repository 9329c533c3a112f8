//go:build !linux

package projectquota

// Enforced reports whether there are project quotas; only Linux has them.
func Enforced(string) bool { return false }

// Set does nothing.
func Set(_ string, _, _ int64) error { return nil }

// Clear does nothing.
func Clear(string) {}

// Share does nothing.
func Share(_, _ string) error { return nil }
