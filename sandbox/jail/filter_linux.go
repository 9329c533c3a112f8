package jail

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// The filter is an allow-list: what is not named in syscalls_linux*.go is refused. It is no weaker than Docker's default profile,
// and stricter in what a command has no use for: no ptrace, no reading of other processes' memory, no files that would run as
// their owner, no sockets but local ones and IP.
//
//	other architecture, x32 ──► the process is killed
//	clone, socket, ioctl … ──► by their arguments
//	listed                 ──► allowed
//	newer than the list    ──► ENOSYS, so that programs fall back
//	all the rest           ──► EPERM

const (
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
	retAllow = unix.SECCOMP_RET_ALLOW
	retErrno = unix.SECCOMP_RET_ERRNO

	x32Bit = 0x40000000

	// Offsets in struct seccomp_data.
	atNumber = 0
	atArch   = 4
	atArgs   = 16
)

// lastKnown is the newest call somebody has looked at for this list: fchmodat2 was 452, the futex calls 454 to 456, mseal 462.
const lastKnown = 462

// newNamespaces are the flags of clone that make one.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// setID are the mode bits that make a program run as its owner or group. On the host a jail's files belong to the worker.
const setID = 0o6000

// tmpFile is O_TMPFILE without the O_DIRECTORY in it.
const tmpFile = unix.O_TMPFILE &^ unix.O_DIRECTORY

type filter []unix.SockFilter

func (f *filter) op(code uint16, k uint32, jt, jf uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (f *filter) ret(what uint32) { f.op(unix.BPF_RET|unix.BPF_K, what, 0, 0) }

func errno(e unix.Errno) uint32 { return retErrno | uint32(e) }

// load takes the low half of an argument: every one that is looked at is an int.
func (f *filter) load(arg int) {
	f.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, uint32(atArgs+8*arg), 0, 0)
}

// is and has go on with the next instruction when it is so, and skip one otherwise: a ret stands there.
func (f *filter) is(k uint32)  { f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, 0, 1) }
func (f *filter) has(k uint32) { f.op(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, k, 0, 1) }

// rules say what is done about the calls that are not allowed or refused as they are. A body has to return on every path.
type rules map[int]filter

// when adds the rule of one call.
func (r rules) when(number int, body func(f *filter)) {
	var b filter
	body(&b)
	r[number] = b
}

// refuse is a call that is refused when an argument has one of these bits.
func (r rules) refuse(number, arg int, bits uint32) {
	r.when(number, func(f *filter) {
		f.load(arg)
		f.has(bits)
		f.ret(errno(unix.EPERM))
		f.ret(retAllow)
	})
}

// creating is an open whose mode counts only when it makes a file: otherwise the register may hold anything.
func (r rules) creating(number, flags, mode int) {
	r.when(number, func(f *filter) {
		f.load(flags)
		f.op(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, unix.O_CREAT|tmpFile, 1, 0)
		f.ret(retAllow)
		f.load(mode)
		f.has(setID)
		f.ret(errno(unix.EPERM))
		f.ret(retAllow)
	})
}

// buildFilter assembles the filter as the kernel takes it.
func buildFilter() []byte {
	var f filter
	f.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, atArch, 0, 0)
	f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch, 1, 0)
	f.ret(retKill)
	f.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, atNumber, 0, 0)
	f.op(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, x32Bit, 0, 1)
	f.ret(retKill)
	r := make(rules)
	r.arguments()
	r.modes()
	f = append(f, search(r.spans())...)
	b := make([]byte, 0, 8*len(f))
	for _, i := range f {
		b = binary.LittleEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b
}

// span is the calls from a number up to the next span's, and what is done about them.
type span struct {
	first int
	body  filter
}

// spans puts every number into one, in order.
func (r rules) spans() []span {
	list := allowed()
	var all []span
	for number := range lastKnown + 2 {
		body, ok := r[number]
		switch {
		case ok:
		case slices.Contains(list, number):
			body.ret(retAllow)
		case number > lastKnown:
			body.ret(errno(unix.ENOSYS))
		default:
			body.ret(errno(unix.EPERM))
		}
		if n := len(all); n == 0 || ok || !slices.Equal(all[n-1].body, body) {
			all = append(all, span{number, body})
		}
	}
	return all
}

// search finds the number's span by halves. The kernel tries out every call when it installs a filter, so that a list from first to
// last would take the better part of a millisecond for each jail.
func search(all []span) filter {
	if len(all) == 1 {
		return all[0].body
	}
	half := len(all) / 2
	below, above := search(all[:half]), search(all[half:])
	var f filter
	f.op(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, uint32(all[half].first), 0, 1)
	f.op(unix.BPF_JMP|unix.BPF_JA, uint32(len(below)), 0, 0)
	return append(append(f, below...), above...)
}

// arguments are the calls that are allowed in part.
func (r rules) arguments() {
	r.refuse(unix.SYS_CLONE, 0, newNamespaces)
	for _, number := range []int{unix.SYS_CLONE3, unix.SYS_OPENAT2} {
		// Their arguments lie in memory, where a filter cannot look. Everybody falls back on the older call.
		r.when(number, func(f *filter) { f.ret(errno(unix.ENOSYS)) })
	}
	r.when(unix.SYS_IOCTL, func(f *filter) {
		f.load(1)
		for _, request := range []uint32{unix.TIOCSTI, unix.TIOCLINUX} {
			f.is(request)
			f.ret(errno(unix.EPERM))
		}
		f.ret(retAllow)
	})
	r.when(unix.SYS_PRLIMIT64, func(f *filter) {
		// The supervisor has the same user, and a limit lowered under it would end the sandbox.
		f.load(0)
		f.is(0)
		f.ret(retAllow)
		f.ret(errno(unix.EPERM))
	})
	r.when(unix.SYS_PERSONALITY, func(f *filter) {
		f.load(0)
		for _, persona := range []uint32{0, 0x8, 0x20000, 0x20008, 0xffffffff} {
			f.is(persona)
			f.ret(retAllow)
		}
		f.ret(errno(unix.EPERM))
	})
	r.when(unix.SYS_SOCKET, (*filter).sockets)
	r.when(unix.SYS_SOCKETPAIR, func(f *filter) {
		f.load(0)
		f.is(unix.AF_UNIX)
		f.ret(retAllow)
		f.ret(errno(unix.EAFNOSUPPORT))
	})
}

// sockets allows local ones, IP without raw packets, and the netlink that getifaddrs asks. AF_VSOCK and others reach past
// network namespaces, or are old code with a history.
func (f *filter) sockets() {
	f.load(0)
	f.is(unix.AF_UNIX)
	f.ret(retAllow)
	var ip filter
	ip.load(1)
	ip.op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf, 0, 0)
	for _, kind := range []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		ip.is(kind)
		ip.ret(retAllow)
	}
	ip.ret(errno(unix.EPERM))
	var netlink filter
	netlink.load(2)
	netlink.is(unix.NETLINK_ROUTE)
	netlink.ret(retAllow)
	netlink.ret(errno(unix.EAFNOSUPPORT))
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, family, 0, uint8(len(ip)))
		*f = append(*f, ip...)
	}
	f.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, unix.AF_NETLINK, 0, uint8(len(netlink)))
	*f = append(*f, netlink...)
	f.ret(errno(unix.EAFNOSUPPORT))
}

// modes keeps set-id bits off files.
func (r rules) modes() {
	for _, m := range modeCalls() {
		r.refuse(m[0], m[1], setID)
	}
	for _, o := range openCalls() {
		r.creating(o[0], o[1], o[2])
	}
}
