package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// demotions change how the supervisor is scheduled, each by its own process, its group or its user. Calls for the process itself, which
// commands do make, have no place here.
func demotions() map[string][4]uintptr {
	param, mask := zeros(), cString("\x01\x00\x00\x00\x00\x00\x00")
	attr := memoryOf(unix.SizeofSchedAttr, "\x38\x00\x00\x00\x05") // its size, SCHED_IDLE
	idle := uintptr(3 << 13)                                       // IOPRIO_CLASS_IDLE
	return map[string][4]uintptr{
		"sched_setscheduler": {unix.SYS_SCHED_SETSCHEDULER, 1, unix.SCHED_IDLE, param},
		"sched_setparam":     {unix.SYS_SCHED_SETPARAM, 1, param},
		"sched_setattr":      {unix.SYS_SCHED_SETATTR, 1, attr},
		"sched_setaffinity":  {unix.SYS_SCHED_SETAFFINITY, 1, 8, mask},
		"nice":               {unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 1, 19},
		"nice of the group":  {unix.SYS_SETPRIORITY, unix.PRIO_PGRP, 1, 19},
		"nice of the user":   {unix.SYS_SETPRIORITY, unix.PRIO_USER, 0, 19},
		"ioprio":             {unix.SYS_IOPRIO_SET, 1, 1, idle},
		"ioprio of the user": {unix.SYS_IOPRIO_SET, 3, uintptr(os.Getuid()), idle},
	}
}

func demote() {
	for name, c := range demotions() {
		tryCall(name, c[0], c[1:]...)
	}
	for _, file := range []string{"autogroup", "timerslack_ns", "oom_score_adj", "sched"} {
		err := os.WriteFile("/proc/1/"+file, []byte("19"), 0)
		report("write /proc/1/"+file, err)
	}
	for name, c := range map[string][4]uintptr{
		"self sched_setscheduler": {unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_BATCH, zeros()},
		"self nice":               {unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, 19}, // allowed whatever the worker's own
		"self ioprio":             {unix.SYS_IOPRIO_SET, 1, 0, 2<<13 | 7},
	} {
		tryCall(name, c[0], c[1:]...)
	}
}

// starve demotes every thread of the supervisor and then takes its CPU with COUNT processes that ignore signals.
func starve() {
	tasks, err := os.ReadDir("/proc/1/task")
	if err != nil {
		panic(err)
	}
	param, mask := zeros(), cString("\x01\x00\x00\x00\x00\x00\x00")
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			panic(err)
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, uintptr(tid), 8, mask)
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(tid), unix.SCHED_IDLE, param)
	}
	for range number("COUNT") {
		if pid, err := clone(); err != nil || pid == 0 {
			break
		}
	}
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
}
