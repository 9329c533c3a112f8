package files

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Constants of Linux that package syscall lacks.
const (
	oTmpfile        = 0x400000 | syscall.O_DIRECTORY
	atFDCWD         = ^uintptr(99)
	atSymlinkFollow = 0x400
)

// nameless makes a file without a name, of which nothing is left when this program is killed. Some file systems have none.
func nameless(dir *os.Root) (*os.File, error) {
	return dir.OpenFile(".", oTmpfile|os.O_WRONLY, 0o600)
}

// link gives a nameless file a name.
func link(f *os.File, dir *os.Root, name string) error {
	to, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer to.Close()
	from, err := syscall.BytePtrFromString("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return err
	}
	base, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, e := syscall.Syscall6(syscall.SYS_LINKAT, atFDCWD, uintptr(unsafe.Pointer(from)), to.Fd(), uintptr(unsafe.Pointer(base)), atSymlinkFollow, 0)
	if e != 0 {
		return &os.PathError{Op: "link", Path: name, Err: e}
	}
	return nil
}
