package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tooMuch is more than the limit of the workspace, in bytes.
const tooMuch = 90_000_000

// must ends the probe with an error.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fill writes tooMuch into the working directory, in files below the limit of one file.
func fill() {
	for i := range 3 {
		must(os.WriteFile("fill"+strconv.Itoa(i), make([]byte, tooMuch/3), 0o600))
	}
}

// keepSize allocates blocks for empty files.
func keepSize() {
	for i := range 3 {
		f, err := os.Create("f" + strconv.Itoa(i))
		must(err)
		must(unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, tooMuch/3))
	}
	time.Sleep(time.Hour)
}

func deep() {
	for range 300 {
		must(os.Mkdir("d", 0o700))
		must(os.Chdir("d"))
	}
	fill()
	time.Sleep(time.Hour)
}

func unreadable() {
	must(os.Mkdir("closed", 0o700))
	must(os.Chdir("closed"))
	fill()
	must(os.Chmod(".", 0))
	time.Sleep(time.Hour)
}

// project sets the attributes of a file by which it belongs to a project; each call would change nothing.
func project() {
	f, err := os.Create("mine")
	must(err)
	for _, call := range []struct {
		name    string
		request uintptr
	}{
		{"read the flags", unix.FS_IOC_GETFLAGS}, {"set the flags", unix.FS_IOC_SETFLAGS}, {"set the flags, with high bits", 1<<32 | unix.FS_IOC_SETFLAGS},
		{"set the project", setAttributes}, {"set the project, with high bits", 1<<32 | setAttributes},
	} {
		tryCall(call.name, unix.SYS_IOCTL, f.Fd(), call.request, zeros())
	}
}

// setAttributes is FS_IOC_FSSETXATTR of linux/fs.h.
const setAttributes = 0x401c5820

func small() {
	for i := range 1000 {
		must(os.WriteFile(strconv.Itoa(i), nil, 0o600))
	}
	time.Sleep(time.Hour)
}
