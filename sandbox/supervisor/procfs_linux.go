package supervisor

import "syscall"

// Package os would do all of this, with half a dozen system calls a file where these do three, and with a third more
// program.

// readFile is a whole file of /proc.
func readFile(path string) ([]byte, error) {
	fd, err := open(path, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	return readFrom(fd), nil
}

// readFrom is all of an open file; what came before an error, where there is one.
func readFrom(fd int) []byte {
	all := make([]byte, 0, 512)
	for {
		if cap(all)-len(all) < 256 {
			all = append(make([]byte, 0, 4*cap(all)), all...)
		}
		n, err := syscall.Pread(fd, all[len(all):cap(all)], int64(len(all)))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return all
		}
		all = all[:len(all)+n]
	}
}

// names are a directory's entries; none where it is not there.
func names(dir string) (list []string) {
	fd, err := open(dir, syscall.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	b := make([]byte, 8<<10)
	for {
		n, err := syscall.ReadDirent(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list
		}
		_, _, list = syscall.ParseDirent(b[:n], -1, list)
	}
}

func open(path string, mode int) (int, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|mode, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}
