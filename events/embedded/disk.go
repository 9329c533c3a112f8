//go:build unix

package embedded

import "golang.org/x/sys/unix"

// freeBytes returns the bytes that an unprivileged process may still write to the disk of dir; 0 when unknown.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
