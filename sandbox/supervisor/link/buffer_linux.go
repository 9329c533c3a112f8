package link

import "golang.org/x/sys/unix"

// growSocket makes room in a socket, beyond the system's limit (net.core.wmem_max) where this process has the right to.
func growSocket(fd, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size) // less is slower, no more
	}
}
