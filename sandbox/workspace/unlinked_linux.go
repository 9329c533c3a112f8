package workspace

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxVisited bounds the processes of one search: many times what a sandbox may have.
	maxVisited = 1 << 16
	// compareFiles is KCMP_FILES.
	compareFiles = 2
)

// Unlinked returns what files take on the disk that have no name any more, and that a sandbox's processes hold open on the file system of
// its workspace, in bytes. pid is its supervisor, 0 for none: all processes of the sandbox are below it. What this process may not see,
// and what is held without a descriptor, as by a mapping, is not counted.
func Unlinked(dir string, pid int) int64 {
	var root unix.Stat_t
	if pid <= 0 || unix.Stat(dir, &root) != nil {
		return 0
	}
	u := unlinked{device: uint64(root.Dev), inodes: make(map[uint64]struct{}), names: make([]byte, largeBuffer)}
	visited := map[int]bool{pid: true}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, child := range u.process(queue[0]) {
			if !visited[child] && len(visited) < maxVisited {
				visited[child] = true
				queue = append(queue, child)
			}
		}
	}
	return u.bytes
}

// unlinked is one search. Processes begin and end meanwhile: what cannot be read is gone.
type unlinked struct {
	device uint64
	inodes map[uint64]struct{} // those counted
	bytes  int64
	names  []byte // buffer for ReadDirent
}

// process counts what a process holds, and returns its children. Each of its threads may have a table of descriptors of its own.
func (u *unlinked) process(pid int) (children []int) {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	_ = u.folder(tasks, func(_ int, name string) {
		tid, err := strconv.Atoi(name)
		if err != nil {
			return
		}
		if b, err := os.ReadFile(tasks + name + "/children"); err == nil {
			for _, field := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(field); err == nil {
					children = append(children, child)
				}
			}
		}
		if tid != pid {
			if order, _, e := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(tid), compareFiles, 0, 0, 0); e == 0 && order == 0 {
				return // that of the first thread
			}
		}
		_ = u.folder(tasks+name+"/fd", u.file)
	})
	return children
}

// file counts a descriptor's file, by a name in a folder of /proc that leads to it and to nothing else.
func (u *unlinked) file(dir int, name string) {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, 0) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || uint64(st.Dev) != u.device {
		return
	}
	if _, counted := u.inodes[st.Ino]; counted {
		return
	}
	u.inodes[st.Ino] = struct{}{}
	u.bytes += st.Blocks * blockBytes
}

// folder calls visit with every name in a folder of /proc. visit may use the buffer again.
func (u *unlinked) folder(path string, visit func(dir int, name string)) error {
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	for {
		n, err := unix.ReadDirent(dir, u.names)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		_, _, names := unix.ParseDirent(u.names[:n], -1, nil)
		for _, name := range names {
			visit(dir, name)
		}
	}
}
