package syncer

import "golang.org/x/sys/unix"

func statTimes(st *unix.Stat_t) (mtime, ctime int64) { return st.Mtim.Nano(), st.Ctim.Nano() }

// syncFiles makes everything written to the file system that fd is on durable.
func syncFiles(fd int) error { return unix.Syncfs(fd) }
