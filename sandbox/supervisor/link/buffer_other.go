//go:build !linux

package link

import "golang.org/x/sys/unix"

// growSocket makes room in a socket, as far as the system allows.
func growSocket(fd, size int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size) }
