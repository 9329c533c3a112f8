package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// forked makes a call in a child, and says how that went, or that the child was killed for it.
func forked(name string, call func() uintptr) {
	pid, err := clone()
	if err != nil {
		say(name, err)
		return
	}
	if pid == 0 {
		r := call()
		// What an errno looks like in the result of a call.
		if int64(r) < 0 && int64(r) >= -4095 {
			leave(1)
		}
		leave(0)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		say(name, err)
		return
	}
	switch {
	case status.Signaled():
		fmt.Printf("%s\tkilled by %s\n", name, unix.SignalName(status.Signal()))
	case status.ExitStatus() != 0:
		fmt.Printf("%s\trefused\n", name)
	default:
		say(name, nil)
	}
}

// clone is fork. The child may make raw calls and nothing else.
func clone() (pid int, err error) {
	r, _, e := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), nil
}

func leave(code uintptr) {
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
	}
}

func pause() {
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// number is a count given by the environment.
func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(err)
	}
	return n
}

// zombies makes orphans that end at once, a chain of short lives each, without ever waiting.
func zombies() {
	made := 0
	for range number("COUNT") {
		pid, err := clone()
		if err == nil && pid == 0 {
			_, _ = clone()
			leave(0)
		}
		if err == nil {
			made++
			continue
		}
		// The limit is reached: the dead are kept until their parent looks.
		for {
			var status unix.WaitStatus
			if pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
	fmt.Printf("made\t%d\n", made)
}

// forks makes at most so many children that stay, and says how many it got.
func forks() {
	made := 0
	for range number("COUNT") {
		pid, err := clone()
		if err == nil && pid == 0 {
			pause()
		}
		if err != nil {
			say("fork", err)
			break
		}
		made++
	}
	fmt.Printf("made\t%d\n", made)
}

// hold is forks that stays, and takes again what becomes free.
func hold() {
	forks()
	pause()
}

// bomb is a fork bomb with a bound of its own: every process makes two more, to a depth of DEPTH, and stays.
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
