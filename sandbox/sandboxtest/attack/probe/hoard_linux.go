package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// queuedSignal is a real-time signal that nothing here handles.
const queuedSignal = 40

// counted are the things that the kernel counts by user: each takes one more.
func counted() map[string]func() error {
	queues := 0
	return map[string]func() error{
		"inotify": func() error {
			_, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			return err
		},
		"signal": func() error {
			info := make([]int32, 32) // siginfo_t
			info[0], info[2] = queuedSignal, -1
			_, _, e := unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), uintptr(unix.Gettid()), queuedSignal, uintptr(unsafe.Pointer(&info[0])), 0, 0)
			return errorOf(e)
		},
		"timer": func() error {
			var id int32
			_, _, e := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&id)))
			return errorOf(e)
		},
		"queue": func() error {
			queues++
			_, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, cString("q"+strconv.Itoa(queues)), unix.O_CREAT|unix.O_RDWR, 0o600, cString("\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x10"), 0, 0)
			return errorOf(e)
		},
		"pipe": func() error {
			var ends [2]int
			if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
				return err
			}
			size, err := unix.FcntlInt(uintptr(ends[0]), unix.F_GETPIPE_SZ, 0)
			if err == nil && size < 1<<16 {
				return unix.EPERM // the kernel gives no more than two pages
			}
			if len(os.Args) > 1 && os.Args[1] == "hoard" {
				_, _ = unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, 1<<20) // refused for the last ones, which stay as they are
			}
			return err
		},
		"aio": func() error {
			var context uint64
			_, _, e := unix.Syscall(unix.SYS_IO_SETUP, 1024, uintptr(unsafe.Pointer(&context)), 0)
			return errorOf(e)
		},
	}
}

func errorOf(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// holdSignals keeps queuedSignal waiting in this thread.
func holdSignals() {
	runtime.LockOSThread()
	var set unix.Sigset_t
	set.Val[0] = 1 << (queuedSignal - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		report("mask", err)
	}
}

// hoard takes as much as it gets of what is counted by user, says how much, and keeps it.
func hoard() {
	holdSignals()
	all := counted()
	for _, name := range []string{"inotify", "signal", "timer", "queue", "aio", "pipe"} {
		n, take := 0, all[name]
		for ; n < 100_000 && take() == nil; n++ {
		}
		fmt.Printf("%s\t%d\n", name, n)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

// share takes one of each.
func share() {
	holdSignals()
	for name, take := range counted() {
		report(name, take())
	}
}

// buffers fills the buffers of connections to itself, up to 256 MiB, and says how much they hold.
func buffers() {
	const enough = 256 << 20
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		report("listen", err)
		return
	}
	held, chunk := 0, make([]byte, 1<<20)
	var conns []net.Conn // what nothing refers to is closed
	for range 100 {
		out, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			break
		}
		in, err := listener.Accept()
		if err != nil {
			break
		}
		conns = append(conns, out, in)
		for held < enough {
			_ = out.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			n, err := out.Write(chunk)
			held += n
			if err != nil {
				break
			}
		}
		if held >= enough {
			break
		}
	}
	fmt.Printf("bytes\t%d\nconnections\t%d\n", held, len(conns)/2)
}
