//go:build !linux

package zygote

// Main is for Linux alone; elsewhere it gives the exit code of a failed start.
func Main() int { return 125 }
