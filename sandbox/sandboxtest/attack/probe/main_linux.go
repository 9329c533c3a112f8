package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	for _, group := range os.Args[1:] {
		run, ok := groups[group]
		if !ok {
			fmt.Fprintf(os.Stderr, "probe: unknown group %q\n", group)
			os.Exit(2)
		}
		run()
	}
}

var groups = map[string]func(){
	"mounts": mounts, "namespaces": namespaces, "others": others, "kernel": kernel, "sockets": sockets, "modes": modes,
	"clocks": clocks, "terminals": terminals, "supervisor": supervisor, "storm": storm, "tables": tables, "links": links, "descriptors": descriptors,
	"reach": reach, "ping": ping, "abstract": abstract, "route": route, "flood": flood,
	"zombies": zombies, "forks": forks, "hold": hold, "bomb": bomb, "memory": memory, "openfiles": openFiles, "demote": demote, "starve": starve, "headless": headless,
	"hoard": hoard, "share": share, "buffers": buffers,
	"keepsize": keepSize, "deep": deep, "unreadable": unreadable, "small": small, "project": project,
}

func report(name string, err error) {
	result := "done"
	if err != nil {
		result = err.Error()
		if e, ok := errors.AsType[syscall.Errno](err); ok {
			result = unix.ErrnoName(e)
		}
	}
	fmt.Printf("%s\t%s\n", name, result)
}

func tryCall(name string, number uintptr, args ...uintptr) {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := syscall.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		report(name, e)
		return
	}
	report(name, nil)
}

func cString(s string) uintptr { return memoryOf(len(s)+1, s) }

func zeros() uintptr { return memoryOf(512, "") }

// memoryOf returns the address of memory that is never moved or freed: the garbage collector does not see the pointers of raw calls.
func memoryOf(size int, text string) uintptr {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	copy(b, text)
	return uintptr(unsafe.Pointer(&b[0]))
}

const cwd = ^uintptr(99)

func mounts() {
	tryCall("mount tmpfs", unix.SYS_MOUNT, cString("x"), cString("/tmp"), cString("tmpfs"), 0, 0)
	tryCall("mount proc", unix.SYS_MOUNT, cString("x"), cString("/tmp"), cString("proc"), 0, 0)
	tryCall("bind", unix.SYS_MOUNT, cString("/"), cString("/tmp"), 0, unix.MS_BIND|unix.MS_REC, 0)
	tryCall("remount", unix.SYS_MOUNT, cString("x"), cString("/"), 0, unix.MS_REMOUNT|unix.MS_BIND, 0)
	tryCall("remount usr", unix.SYS_MOUNT, cString("x"), cString("/usr"), 0, unix.MS_REMOUNT|unix.MS_BIND, 0)
	tryCall("umount proc", unix.SYS_UMOUNT2, cString("/proc"), unix.MNT_DETACH)
	tryCall("umount mask", unix.SYS_UMOUNT2, cString("/proc/kcore"), unix.MNT_DETACH)
	tryCall("pivot_root", unix.SYS_PIVOT_ROOT, cString("/tmp"), cString("/tmp"))
	tryCall("chroot", unix.SYS_CHROOT, cString("/tmp"))
	tryCall("open_tree", unix.SYS_OPEN_TREE, cwd, cString("/"), unix.OPEN_TREE_CLONE)
	tryCall("move_mount", unix.SYS_MOVE_MOUNT, cwd, cString("/proc"), cwd, cString("/tmp"), 0)
	tryCall("fsopen", unix.SYS_FSOPEN, cString("tmpfs"), 0)
	tryCall("fspick", unix.SYS_FSPICK, cwd, cString("/"), 0)
	tryCall("mount_setattr", unix.SYS_MOUNT_SETATTR, cwd, cString("/"), 0, zeros(), 32)
}

func namespaces() {
	for name, f := range map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
	} {
		tryCall("unshare "+name, unix.SYS_UNSHARE, f)
		if name == "time" {
			continue // clone does not support it
		}
		pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE, f|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case e != 0:
			report("clone "+name, e)
		case pid == 0:
			exit(0)
		default:
			report("clone "+name, nil)
		}
	}
	tryCall("clone3", unix.SYS_CLONE3, zeros(), 64)
	for _, ns := range []string{"/proc/self/ns/mnt", "/proc/1/ns/mnt"} {
		fd, err := unix.Open(ns, unix.O_RDONLY, 0)
		if err != nil {
			report("setns "+ns, err)
			continue
		}
		tryCall("setns "+ns, unix.SYS_SETNS, uintptr(fd), 0)
	}
}

func others() {
	tryCall("ptrace traceme", unix.SYS_PTRACE, unix.PTRACE_TRACEME)
	tryCall("ptrace attach", unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1)
	tryCall("ptrace seize", unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1)
	tryCall("process_vm_readv", unix.SYS_PROCESS_VM_READV, 1, zeros(), 1, zeros(), 1)
	tryCall("process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, 1, zeros(), 1, zeros(), 1)
	tryCall("kcmp", unix.SYS_KCMP, 1, uintptr(os.Getpid()), 0, 0, 0)
	if fd, err := unix.PidfdOpen(1, 0); err == nil {
		tryCall("pidfd_getfd", unix.SYS_PIDFD_GETFD, uintptr(fd), 3, 0)
	}
	for _, path := range []string{"mem", "environ", "fd", "fd/3", "exe", "root", "cwd", "maps", "syscall", "stack"} {
		f, err := os.Open("/proc/1/" + path)
		report("open /proc/1/"+path, err)
		if err == nil {
			_ = f.Close()
		}
	}
}

func kernel() {
	for name, number := range map[string]uintptr{
		"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD,
		"io_uring_setup": unix.SYS_IO_URING_SETUP, "keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY,
		"request_key": unix.SYS_REQUEST_KEY, "kexec_load": unix.SYS_KEXEC_LOAD, "init_module": unix.SYS_INIT_MODULE,
		"finit_module": unix.SYS_FINIT_MODULE, "delete_module": unix.SYS_DELETE_MODULE, "reboot": unix.SYS_REBOOT,
		"swapon": unix.SYS_SWAPON, "swapoff": unix.SYS_SWAPOFF, "acct": unix.SYS_ACCT, "quotactl": unix.SYS_QUOTACTL,
		"sethostname": unix.SYS_SETHOSTNAME, "setdomainname": unix.SYS_SETDOMAINNAME, "vhangup": unix.SYS_VHANGUP,
		"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "fanotify_init": unix.SYS_FANOTIFY_INIT,
		"lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE, "move_pages": unix.SYS_MOVE_PAGES,
	} {
		tryCall(name, number, 0, zeros(), zeros(), 0)
	}
	tryCall("syslog", unix.SYS_SYSLOG, 3, zeros(), 512)
	tryCall("personality", unix.SYS_PERSONALITY, 0x0400000)
}

func sockets() {
	for name, s := range map[string][3]int{
		"raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "raw6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		"packet": {unix.AF_PACKET, unix.SOCK_RAW, 0}, "vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		"alg": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, "bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		"audit": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, "xfrm": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
		"netfilter": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, "uevent": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		"tipc": {unix.AF_TIPC, unix.SOCK_STREAM, 0}, "rds": {unix.AF_RDS, unix.SOCK_SEQPACKET, 0}, "can": {unix.AF_CAN, unix.SOCK_RAW, 1},
		"xdp": {unix.AF_XDP, unix.SOCK_RAW, 0}, "kcm": {unix.AF_KCM, unix.SOCK_DGRAM, 0}, "x25": {unix.AF_X25, unix.SOCK_SEQPACKET, 0},
		"mptcp": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, "mptcp6": {unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
		"udplite": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}, "sctp": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		"ping": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, "ping6": {unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
	} {
		fd, err := unix.Socket(s[0], s[1], s[2])
		report("socket "+name, err)
		if err == nil {
			_ = unix.Close(fd)
		}
	}
}

func modes() {
	report("plain file", os.WriteFile("plain", nil, 0o644))
	report("chmod setuid", unix.Chmod("plain", 0o4755))
	report("chmod setgid", unix.Fchmodat(unix.AT_FDCWD, "plain", 0o2755, 0))
	fd, err := unix.Open("created", unix.O_CREAT|unix.O_WRONLY, 0o4755)
	report("create setuid", err)
	if err == nil {
		_ = unix.Close(fd)
	}
	tryCall("openat2", unix.SYS_OPENAT2, cwd, cString("created"), zeros(), 24)
	report("mkdir setgid", unix.Mkdir("folder", 0o2755))
	report("mknod setuid", unix.Mknod("fifo", unix.S_IFIFO|0o4644, 0))
	report("mknod char", unix.Mknod("/tmp/null", unix.S_IFCHR|0o666, 0x103))
	report("mknod block", unix.Mknod("disk", unix.S_IFBLK|0o666, 0xfe00))
	report("file capabilities", unix.Setxattr("plain", "security.capability", make([]byte, 20), 0))
	report("setuid 0", syscall.Setuid(0))
	report("setgid 0", syscall.Setgid(0))
	report("chown to root", os.Chown("plain", 0, 0))
}

func clocks() {
	now := unix.NsecToTimespec(time.Now().UnixNano())
	report("clock_settime", unix.ClockSettime(unix.CLOCK_REALTIME, &now))
	tv := unix.NsecToTimeval(time.Now().UnixNano())
	report("settimeofday", unix.Settimeofday(&tv))
	_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_FREQUENCY})
	report("adjtimex", err)
	_, err = unix.ClockAdjtime(unix.CLOCK_REALTIME, &unix.Timex{Modes: unix.ADJ_FREQUENCY})
	report("clock_adjtime", err)
}

func terminals() {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		report("TIOCSTI", err)
		return
	}
	c := byte('x')
	tryCall("TIOCSTI", unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	tryCall("TIOCLINUX", unix.SYS_IOCTL, uintptr(fd), unix.TIOCLINUX, uintptr(unsafe.Pointer(&c)))
	// The kernel ignores the high half of a request, and a filter must too.
	tryCall("TIOCSTI with high bits", unix.SYS_IOCTL, uintptr(fd), 1<<32|unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
}

// supervisor attempts on pid 1 what a process of the same user may do.
func supervisor() {
	for sig := 1; sig <= 64; sig++ {
		_ = unix.Kill(1, syscall.Signal(sig))
	}
	limit := unix.Rlimit{Cur: 3, Max: 3}
	report("prlimit", unix.Prlimit(1, unix.RLIMIT_NOFILE, &limit, nil))
}

// storm sends pid 1 every signal, over and over: it forks meanwhile, and handles the signals by which a Go program interrupts itself.
func storm() {
	for range 3 {
		go func() {
			for {
				_ = unix.Kill(1, syscall.SIGURG)
			}
		}()
	}
	report("began", nil)
	for {
		for sig := 1; sig <= 64; sig++ {
			_ = unix.Kill(1, syscall.Signal(sig))
		}
	}
}

// openFiles tries to raise its limit of open files, and then opens as many as it can.
func openFiles() {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit.Max + 1, Max: limit.Max + 1})
	}
	report("raise the limit", err)
	opened := 0
	for ; ; opened++ {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			report("the last one", err)
			break
		}
	}
	fmt.Printf("opened\t%d\n", opened)
}

// links attempts hard links to files outside the workspace.
func links() {
	for _, from := range []string{"/etc/passwd", "/etc/hosts", "/bin/sh", "/dev/null", "/proc/1/exe", "/proc/self/mounts", "/sluice/supervisor"} {
		report("link "+from, unix.Link(from, "linked"))
		report("linkat "+from, unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, "followed", unix.AT_SYMLINK_FOLLOW))
		fd, err := unix.Open(from, unix.O_PATH, 0)
		if err != nil {
			continue
		}
		report("linkat open "+from, unix.Linkat(fd, "", unix.AT_FDCWD, "opened", unix.AT_EMPTY_PATH))
		_ = unix.Close(fd)
	}
}

// descriptors reports the descriptors that this process inherited, besides its three streams. It skips those with CLOEXEC, which the Go
// runtime opened.
func descriptors() {
	for fd := range 3 {
		to, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil || to != "/dev/null" && !strings.HasPrefix(to, "pipe:") {
			fmt.Printf("stream %d\tdone %s %v\n", fd, to, err)
		}
	}
	for fd := 3; fd < 4096; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			to, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			fmt.Printf("descriptor %d\tdone: %s\n", fd, to)
		}
	}
	report("checked", unix.EBADF)
}

// memory allocates 300 MB and writes to each page, and reports only success.
func memory() {
	const chunk = 1 << 20
	b := make([]byte, 300*chunk)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	fmt.Printf("memory\tdone %d\n", len(b))
}
