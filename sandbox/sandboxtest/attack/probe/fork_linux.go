package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryForked makes a call in a child, and reports its result or the signal that killed the child.
func tryForked(name string, call func() uintptr) {
	pid, err := clone()
	if err != nil {
		report(name, err)
		return
	}
	if pid == 0 {
		r := call()
		// A raw call returns a negated errno in this range.
		if int64(r) < 0 && int64(r) >= -4095 {
			exit(1)
		}
		exit(0)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		report(name, err)
		return
	}
	switch {
	case status.Signaled():
		fmt.Printf("%s\tkilled by %s\n", name, unix.SignalName(status.Signal()))
	case status.ExitStatus() != 0:
		fmt.Printf("%s\trefused\n", name)
	default:
		report(name, nil)
	}
}

// clone forks. The child may make raw calls and nothing else.
func clone() (pid int, err error) {
	r, _, e := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), nil
}

func exit(code uintptr) {
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
	}
}

func pause() {
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(err)
	}
	return n
}

// zombies starts COUNT processes that each leave an orphan and end, without waiting for them.
func zombies() {
	made := 0
	for range number("COUNT") {
		pid, err := clone()
		if err == nil && pid == 0 {
			_, _ = clone()
			exit(0)
		}
		if err == nil {
			made++
			continue
		}
		// The pids limit is reached: reap the zombies.
		for {
			var status unix.WaitStatus
			if pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
	fmt.Printf("made\t%d\n", made)
}

// headless ends its first thread, then makes the next of the files headless1, headless2 and so on, and stays.
func headless() { endFirstThread() }

// announce makes the file once the first thread has ended.
func announce() {
	for {
		stat, err := os.ReadFile("/proc/self/stat")
		if err != nil {
			panic(err)
		}
		if bytes.Contains(stat, []byte(") Z ")) {
			break
		}
	}
	for i := 1; ; i++ {
		f, err := os.OpenFile("headless"+strconv.Itoa(i), os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_ = f.Close()
			pause()
		}
	}
}

// endFirstThread ends the first thread once a goroutine runs on it. Those that run on others keep these, so that its turn comes. Nothing else may
// run before, since it could keep the first.
func endFirstThread() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go announce()
		_, _, _ = syscall.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	go endFirstThread()
	select {}
}

// forks starts up to COUNT children that stay, and prints how many it started.
func forks() {
	made := 0
	for range number("COUNT") {
		pid, err := clone()
		if err == nil && pid == 0 {
			pause()
		}
		if err != nil {
			report("fork", err)
			break
		}
		made++
	}
	fmt.Printf("made\t%d\n", made)
}

// hold is forks, and stays too.
func hold() {
	forks()
	pause()
}

// bomb is a bounded fork bomb: every process starts two more, to a depth of DEPTH, and stays.
func bomb() {
	depth := number("DEPTH")
	for depth > 0 {
		left, err := clone()
		if err != nil || left != 0 {
			if right, err := clone(); err != nil || right != 0 {
				break
			}
		}
		depth--
	}
	pause()
}
