//go:build !linux

package zygote

// Main is not supported: the zygote needs Linux. It returns the exit code of a failed start.
func Main() int { return 125 }
