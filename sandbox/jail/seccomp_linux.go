package jail

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/projectquota"
)

// The filter is an allow-list: it refuses what syscalls_linux*.go does not name. It is no weaker than Docker's default profile, and
// stricter where commands lose nothing: no ptrace, no reads of other processes' memory, no set-id files, no sockets but local and IP ones.
//
//	another architecture, x32 ──► the process is killed
//	clone, socket, ioctl …    ──► a rule decides by their arguments
//	listed                    ──► allowed
//	newer than lastKnownCall  ──► ENOSYS, so that programs fall back
//	all others                ──► EPERM

const (
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
	retAllow = unix.SECCOMP_RET_ALLOW
	retErrno = unix.SECCOMP_RET_ERRNO

	x32Bit = 0x40000000

	// Offsets in struct seccomp_data.
	numberOffset = 0
	archOffset   = 4
	argsOffset   = 16
)

// lastKnownCall is the newest call that was reviewed for this list: fchmodat2 is 452, the futex calls are 454 to 456, mseal is 462.
const lastKnownCall = 462

// newNamespaces are the flags of clone that create a namespace.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// setID are the mode bits that make a program run as its owner or group. On the host, a jail's files belong to the worker.
const setID = 0o6000

// tmpFile is O_TMPFILE without its O_DIRECTORY bit.
const tmpFile = unix.O_TMPFILE &^ unix.O_DIRECTORY

type filter []unix.SockFilter

func (f *filter) op(code uint16, k uint32, jt, jf uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (f *filter) ret(action uint32) { f.op(unix.BPF_RET|unix.BPF_K, action, 0, 0) }

func errno(e unix.Errno) uint32 { return retErrno | uint32(e) }

// loadArg loads the low half of an argument: all arguments that the rules use are ints.
func (f *filter) loadArg(arg int) {
	f.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, uint32(argsOffset+8*arg), 0, 0)
}

// ifEqual and ifAnyBit execute the next instruction, a ret, when the condition holds, and skip it otherwise.
func (f *filter) ifEqual(k uint32)  { f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, 0, 1) }
func (f *filter) ifAnyBit(k uint32) { f.op(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, k, 0, 1) }

// allowOnly allows these values of an argument, and refuses all others.
func (f *filter) allowOnly(arg int, refusal unix.Errno, values ...uint32) {
	f.loadArg(arg)
	for _, v := range values {
		f.ifEqual(v)
		f.ret(retAllow)
	}
	f.ret(errno(refusal))
}

// ioprioProcess is IOPRIO_WHO_PROCESS.
const ioprioProcess = 1

// allowSelf allows a call whose first argument says what its second one names only for the calling thread: process is the value for a
// process, of which 0 is the caller. Groups and users have the supervisor too.
func (f *filter) allowSelf(process uint32) {
	f.loadArg(0)
	f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, process, 1, 0)
	f.ret(errno(unix.EPERM))
	f.allowOnly(1, unix.EPERM, 0)
}

// rules decide about calls by their arguments. A rule has to return on every path.
type rules map[int]filter

func (r rules) add(number int, body func(f *filter)) {
	var b filter
	body(&b)
	r[number] = b
}

// refuseBits refuses a call when an argument has one of these bits.
func (r rules) refuseBits(number, arg int, bits uint32) {
	r.add(number, func(f *filter) {
		f.loadArg(arg)
		f.ifAnyBit(bits)
		f.ret(errno(unix.EPERM))
		f.ret(retAllow)
	})
}

// refuseSetIDOpen refuses an open that creates a set-id file. Other opens ignore the mode, whose register may hold anything.
func (r rules) refuseSetIDOpen(number, flags, mode int) {
	r.add(number, func(f *filter) {
		f.loadArg(flags)
		f.op(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, unix.O_CREAT|tmpFile, 1, 0)
		f.ret(retAllow)
		f.loadArg(mode)
		f.ifAnyBit(setID)
		f.ret(errno(unix.EPERM))
		f.ret(retAllow)
	})
}

// buildFilter assembles the filter in the kernel's format.
func buildFilter() []byte {
	var f filter
	f.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, archOffset, 0, 0)
	f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch, 1, 0)
	f.ret(retKill)
	f.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, numberOffset, 0, 0)
	f.op(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, x32Bit, 0, 1)
	f.ret(retKill)
	f = append(f, searchTree(newRules().spans())...)
	b := make([]byte, 0, 8*len(f))
	for _, i := range f {
		b = binary.LittleEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b
}

// span is a range of calls with the same rule, up to the first call of the next span.
type span struct {
	first int
	rule  filter
}

// spans covers every call number, in order.
func (r rules) spans() []span {
	list := allowedCalls()
	var all []span
	for number := range lastKnownCall + 2 {
		rule, ok := r[number]
		switch {
		case ok:
		case slices.Contains(list, number):
			rule.ret(retAllow)
		case number > lastKnownCall:
			rule.ret(errno(unix.ENOSYS))
		default:
			rule.ret(errno(unix.EPERM))
		}
		if n := len(all); n == 0 || ok || !slices.Equal(all[n-1].rule, rule) {
			all = append(all, span{number, rule})
		}
	}
	return all
}

// searchTree finds the number's span by binary search. The kernel runs the filter for every call number when it installs one: with a
// linear list this took most of a millisecond for each jail.
func searchTree(all []span) filter {
	if len(all) == 1 {
		return all[0].rule
	}
	half := len(all) / 2
	below, above := searchTree(all[:half]), searchTree(all[half:])
	var f filter
	f.op(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, uint32(all[half].first), 0, 1)
	f.op(unix.BPF_JMP|unix.BPF_JA, uint32(len(below)), 0, 0)
	return append(append(f, below...), above...)
}

// newRules returns the rules of all calls that are allowed in part.
func newRules() rules {
	r := make(rules)
	r.refuseBits(unix.SYS_CLONE, 0, newNamespaces)
	for _, number := range []int{unix.SYS_CLONE3, unix.SYS_OPENAT2, unix.SYS_IO_SETUP} {
		// The arguments of the first two are in memory, which a filter cannot read. Programs fall back to the older call, or to threads.
		r.add(number, func(f *filter) { f.ret(errno(unix.ENOSYS)) })
	}
	r.add(unix.SYS_IOCTL, func(f *filter) {
		f.loadArg(1)
		for _, request := range append(projectquota.Requests(), unix.TIOCSTI, unix.TIOCLINUX) {
			f.ifEqual(request)
			f.ret(errno(unix.EPERM))
		}
		f.ret(retAllow)
	})
	// The supervisor has the same user, and a lower limit for it would end the sandbox.
	r.add(unix.SYS_PRLIMIT64, func(f *filter) { f.allowOnly(0, unix.EPERM, 0) })
	// The same holds for what the scheduler gives it: a kill would wait for a supervisor that does not run. Pid 0 is the calling thread.
	for _, number := range []int{unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER} {
		r.add(number, func(f *filter) { f.allowOnly(0, unix.EPERM, 0) })
	}
	r.add(unix.SYS_SETPRIORITY, func(f *filter) { f.allowSelf(unix.PRIO_PROCESS) })
	r.add(unix.SYS_IOPRIO_SET, func(f *filter) { f.allowSelf(ioprioProcess) })
	r.add(unix.SYS_PERSONALITY, func(f *filter) { f.allowOnly(0, unix.EPERM, 0, 0x8, 0x20000, 0x20008, 0xffffffff) })
	r.add(unix.SYS_SOCKET, (*filter).sockets)
	r.add(unix.SYS_SOCKETPAIR, func(f *filter) { f.allowOnly(0, unix.EAFNOSUPPORT, unix.AF_UNIX) })
	// No file gets set-id bits.
	for _, m := range modeCalls() {
		r.refuseBits(m[0], m[1], setID)
	}
	for _, o := range openCalls() {
		r.refuseSetIDOpen(o[0], o[1], o[2])
	}
	return r
}

// sockets allows local sockets, TCP and UDP, and the netlink protocol that getifaddrs needs. AF_VSOCK and others reach beyond network
// namespaces; other protocols, such as MPTCP, UDP-Lite and ICMP, are code with past vulnerabilities, and programs go on without them.
func (f *filter) sockets() {
	f.loadArg(0)
	f.ifEqual(unix.AF_UNIX)
	f.ret(retAllow)
	var ip filter
	ip.loadArg(1)
	ip.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf, 0, 0)
	for _, k := range []struct{ kind, protocol uint32 }{{unix.SOCK_STREAM, unix.IPPROTO_TCP}, {unix.SOCK_DGRAM, unix.IPPROTO_UDP}} {
		var known filter
		known.allowOnly(2, unix.EPROTONOSUPPORT, 0, k.protocol)
		ip.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k.kind, 0, uint8(len(known)))
		ip = append(ip, known...)
	}
	ip.ret(errno(unix.EPERM))
	var netlink filter
	netlink.allowOnly(2, unix.EAFNOSUPPORT, unix.NETLINK_ROUTE)
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, family, 0, uint8(len(ip)))
		*f = append(*f, ip...)
	}
	f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, unix.AF_NETLINK, 0, uint8(len(netlink)))
	*f = append(*f, netlink...)
	f.ret(errno(unix.EAFNOSUPPORT))
}
