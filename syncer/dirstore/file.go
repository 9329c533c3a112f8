package dirstore

import (
	"io/fs"
	"os"
	"syscall"
)

// control runs a system call on a file's descriptor.
func control(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if failed := raw.Control(func(fd uintptr) { err = call(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

func inode(info fs.FileInfo) (uint64, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Ino, true
}
