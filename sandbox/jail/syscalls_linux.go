package jail

import (
	"slices"

	"golang.org/x/sys/unix"
)

// commonCalls are the calls of every architecture that are allowed with any arguments. The rules for calls that depend on their
// arguments are in seccomp_linux.go.
//
// Not allowed, each for a reason: mount, umount2, pivot_root, the fsopen family, open_tree, move_mount, mount_setattr (mounts);
// unshare, setns, clone3 (namespaces); ptrace, process_vm_readv, process_vm_writev, process_madvise, pidfd_getfd, kcmp (other
// processes); io_setup and the calls on its contexts, whose number is limited for the machine (fs.aio-max-nr); bpf,
// perf_event_open, userfaultfd, io_uring_*, keyctl, add_key, request_key, memfd_secret, fanotify_* (large kernel surfaces with past
// vulnerabilities); open_by_handle_at, name_to_handle_at (access that bypasses paths); init_module,
// finit_module, delete_module, kexec_*, reboot, swapon, swapoff, acct, quotactl, syslog, sethostname, setdomainname,
// clock_settime, settimeofday, clock_adjtime, adjtimex, nfsservctl, lookup_dcookie, move_pages, mbind, set_mempolicy,
// migrate_pages, iopl, ioperm, modify_ldt, vhangup, uselib, ustat, sysfs (settings of the machine).
var commonCalls = []int{
	unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_BIND, unix.SYS_BRK, unix.SYS_CACHESTAT, unix.SYS_CAPGET, unix.SYS_CAPSET, unix.SYS_CHDIR,
	unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOSE, unix.SYS_CLOSE_RANGE,
	unix.SYS_CONNECT, unix.SYS_COPY_FILE_RANGE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL,
	unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2, unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_EXIT,
	unix.SYS_EXIT_GROUP, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_FADVISE64, unix.SYS_FALLOCATE, unix.SYS_FCHDIR,
	unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FCNTL, unix.SYS_FDATASYNC, unix.SYS_FGETXATTR, unix.SYS_FLISTXATTR,
	unix.SYS_FLOCK, unix.SYS_FREMOVEXATTR, unix.SYS_FSETXATTR, unix.SYS_FSTAT, unix.SYS_FSTATFS, unix.SYS_FSYNC,
	unix.SYS_FTRUNCATE, unix.SYS_FUTEX, unix.SYS_FUTEX_REQUEUE, unix.SYS_FUTEX_WAIT, unix.SYS_FUTEX_WAITV,
	unix.SYS_FUTEX_WAKE, unix.SYS_GETCPU, unix.SYS_GETCWD, unix.SYS_GETDENTS64, unix.SYS_GETEGID, unix.SYS_GETEUID,
	unix.SYS_GETGID, unix.SYS_GETGROUPS, unix.SYS_GETITIMER, unix.SYS_GETPEERNAME, unix.SYS_GETPGID, unix.SYS_GETPID,
	unix.SYS_GETPPID, unix.SYS_GETPRIORITY, unix.SYS_GETRANDOM, unix.SYS_GETRESGID, unix.SYS_GETRESUID, unix.SYS_GETRLIMIT,
	unix.SYS_GETRUSAGE, unix.SYS_GETSID, unix.SYS_GETSOCKNAME, unix.SYS_GETSOCKOPT, unix.SYS_GETTID, unix.SYS_GETTIMEOFDAY,
	unix.SYS_GETUID, unix.SYS_GETXATTR, unix.SYS_GET_ROBUST_LIST, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_INOTIFY_INIT1,
	unix.SYS_INOTIFY_RM_WATCH, unix.SYS_IOPRIO_GET, unix.SYS_KILL,
	unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_RESTRICT_SELF, unix.SYS_LGETXATTR,
	unix.SYS_LINKAT, unix.SYS_LISTEN, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_LSEEK,
	unix.SYS_LSETXATTR, unix.SYS_MADVISE, unix.SYS_MEMBARRIER, unix.SYS_MEMFD_CREATE, unix.SYS_MINCORE, unix.SYS_MLOCK,
	unix.SYS_MLOCK2, unix.SYS_MLOCKALL, unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MQ_GETSETATTR, unix.SYS_MQ_NOTIFY,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_UNLINK, unix.SYS_MREMAP, unix.SYS_MSEAL,
	unix.SYS_MSGCTL, unix.SYS_MSGGET, unix.SYS_MSGRCV, unix.SYS_MSGSND, unix.SYS_MSYNC, unix.SYS_MUNLOCK, unix.SYS_MUNLOCKALL,
	unix.SYS_MUNMAP, unix.SYS_NANOSLEEP, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PIPE2, unix.SYS_PKEY_ALLOC,
	unix.SYS_PKEY_FREE, unix.SYS_PKEY_MPROTECT, unix.SYS_PPOLL, unix.SYS_PRCTL, unix.SYS_PREAD64, unix.SYS_PREADV,
	unix.SYS_PREADV2, unix.SYS_PSELECT6, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_READ,
	unix.SYS_READAHEAD, unix.SYS_READLINKAT, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMMSG, unix.SYS_RECVMSG,
	unix.SYS_REMAP_FILE_PAGES, unix.SYS_REMOVEXATTR, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_RESTART_SYSCALL,
	unix.SYS_RSEQ, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGQUEUEINFO,
	unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGSUSPEND, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETATTR, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER,
	unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SYS_SCHED_GET_PRIORITY_MIN, unix.SYS_SCHED_RR_GET_INTERVAL,
	unix.SYS_SCHED_YIELD, unix.SYS_SECCOMP, unix.SYS_SEMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP,
	unix.SYS_SENDFILE, unix.SYS_SENDMMSG, unix.SYS_SENDMSG, unix.SYS_SENDTO, unix.SYS_SETFSGID, unix.SYS_SETFSUID,
	unix.SYS_SETGID, unix.SYS_SETGROUPS, unix.SYS_SETITIMER, unix.SYS_SETPGID, unix.SYS_SETREGID,
	unix.SYS_SETRESGID, unix.SYS_SETRESUID, unix.SYS_SETREUID, unix.SYS_SETRLIMIT, unix.SYS_SETSID, unix.SYS_SETSOCKOPT,
	unix.SYS_SETUID, unix.SYS_SETXATTR, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_SHMAT, unix.SYS_SHMCTL,
	unix.SYS_SHMDT, unix.SYS_SHMGET, unix.SYS_SHUTDOWN, unix.SYS_SIGALTSTACK, unix.SYS_SIGNALFD4, unix.SYS_SPLICE,
	unix.SYS_STATFS, unix.SYS_STATX, unix.SYS_SYMLINKAT, unix.SYS_SYNC, unix.SYS_SYNCFS, unix.SYS_SYNC_FILE_RANGE,
	unix.SYS_SYSINFO, unix.SYS_TEE, unix.SYS_TGKILL, unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_GETTIME,
	unix.SYS_TIMERFD_SETTIME, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_DELETE, unix.SYS_TIMER_GETOVERRUN, unix.SYS_TIMER_GETTIME,
	unix.SYS_TIMER_SETTIME, unix.SYS_TIMES, unix.SYS_TKILL, unix.SYS_TRUNCATE, unix.SYS_UMASK, unix.SYS_UNAME,
	unix.SYS_UNLINKAT, unix.SYS_UTIMENSAT, unix.SYS_VMSPLICE, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_WRITE,
	unix.SYS_WRITEV,
}

func allowedCalls() []int { return append(slices.Clone(commonCalls), archCalls...) }

// modeCalls are the calls that set a file's mode, each with the index of its mode argument.
func modeCalls() [][2]int {
	return append([][2]int{
		{unix.SYS_FCHMOD, 1}, {unix.SYS_FCHMODAT, 2}, {unix.SYS_FCHMODAT2, 2}, {unix.SYS_MKDIRAT, 2}, {unix.SYS_MKNODAT, 2},
	}, archModeCalls...)
}

// openCalls are the calls that may create a file, each with the indexes of its flags and mode arguments.
func openCalls() [][3]int { return append([][3]int{{unix.SYS_OPENAT, 2, 3}}, archOpenCalls...) }
