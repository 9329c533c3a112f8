package jail

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// verdict runs the filter's instructions for a call, as the kernel does, and returns the action.
func verdict(t *testing.T, program []byte, arch, number uint32, args ...uint32) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data[numberOffset:], number)
	binary.LittleEndian.PutUint32(data[archOffset:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint32(data[argsOffset+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(program)/8; pc++ {
		in := program[8*pc : 8*pc+8]
		k := binary.LittleEndian.Uint32(in[4:])
		jump := func(taken bool) {
			if taken {
				pc += int(in[2])
			} else {
				pc += int(in[3])
			}
		}
		switch code := binary.LittleEndian.Uint16(in); code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[k:])
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(k)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(acc == k)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(acc >= k)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(acc&k != 0)
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= k
		case unix.BPF_RET | unix.BPF_K:
			return k
		default:
			t.Fatalf("unknown instruction %#x at %d", code, pc)
		}
	}
	t.Fatalf("call %d: the filter ended without a return", number)
	return 0
}

// TestFilterDecidesByRule: each call gets the action of its rule.
func TestFilterDecidesByRule(t *testing.T) {
	f := buildFilter()
	eperm, enosys := errno(unix.EPERM), errno(unix.ENOSYS)
	r := newRules()
	list := allowedCalls()
	for number := range lastKnownCall + 100 {
		want := eperm
		_, hasRule := r[number]
		switch {
		case hasRule:
			continue
		case slices.Contains(list, number):
			want = retAllow
		case number > lastKnownCall:
			want = enosys
		}
		if got := verdict(t, f, auditArch, uint32(number)); got != want {
			t.Errorf("call %d: action = %#x, want %#x", number, got, want)
		}
	}
	const (
		refusedFamily   = retErrno | uint32(unix.EAFNOSUPPORT)
		refusedProtocol = retErrno | uint32(unix.EPROTONOSUPPORT)
	)
	for _, c := range []struct {
		want   uint32
		number int
		args   []uint32
	}{
		{retAllow, unix.SYS_CLONE, []uint32{unix.CLONE_VM | unix.CLONE_THREAD}},
		{eperm, unix.SYS_CLONE, []uint32{unix.CLONE_NEWUSER}},
		{eperm, unix.SYS_CLONE, []uint32{unix.CLONE_NEWNET | unix.CLONE_VM}},
		{enosys, unix.SYS_CLONE3, nil},
		{enosys, unix.SYS_OPENAT2, nil},
		{eperm, unix.SYS_IOCTL, []uint32{0, unix.TIOCSTI}},
		{retAllow, unix.SYS_IOCTL, []uint32{0, unix.TCGETS}},
		{retAllow, unix.SYS_PRLIMIT64, []uint32{0}},
		{eperm, unix.SYS_PRLIMIT64, []uint32{1}},
		{retAllow, unix.SYS_SCHED_SETSCHEDULER, []uint32{0, unix.SCHED_IDLE}},
		{eperm, unix.SYS_SCHED_SETSCHEDULER, []uint32{1, unix.SCHED_IDLE}},
		{retAllow, unix.SYS_SCHED_SETAFFINITY, []uint32{0}},
		{eperm, unix.SYS_SCHED_SETAFFINITY, []uint32{2}},
		{eperm, unix.SYS_SCHED_SETATTR, []uint32{1}},
		{eperm, unix.SYS_SCHED_SETPARAM, []uint32{1}},
		{retAllow, unix.SYS_SETPRIORITY, []uint32{unix.PRIO_PROCESS, 0, 19}},
		{eperm, unix.SYS_SETPRIORITY, []uint32{unix.PRIO_PROCESS, 1, 19}},
		{eperm, unix.SYS_SETPRIORITY, []uint32{unix.PRIO_USER, 0, 19}},
		{retAllow, unix.SYS_IOPRIO_SET, []uint32{1, 0, 0}},
		{eperm, unix.SYS_IOPRIO_SET, []uint32{1, 1, 0}},
		{eperm, unix.SYS_IOPRIO_SET, []uint32{3, 0, 0}},
		{retAllow, unix.SYS_PERSONALITY, []uint32{0xffffffff}},
		{eperm, unix.SYS_PERSONALITY, []uint32{0x40000}},
		{retAllow, unix.SYS_SOCKET, []uint32{unix.AF_UNIX, unix.SOCK_STREAM}},
		{retAllow, unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}},
		{retAllow, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP}},
		{retAllow, unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}},
		{refusedProtocol, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}},
		{refusedProtocol, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_UDP}},
		{refusedProtocol, unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}},
		{refusedProtocol, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP}},
		{eperm, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_RAW}},
		{retAllow, unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}},
		{refusedFamily, unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}},
		{refusedFamily, unix.SYS_SOCKET, []uint32{unix.AF_VSOCK, unix.SOCK_STREAM}},
		{retAllow, unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX}},
		{refusedFamily, unix.SYS_SOCKETPAIR, []uint32{unix.AF_INET}},
		{retAllow, unix.SYS_FCHMOD, []uint32{3, 0o755}},
		{eperm, unix.SYS_FCHMOD, []uint32{3, 0o4755}},
		{eperm, unix.SYS_FCHMODAT, []uint32{3, 0, 0o2755}},
		{retAllow, unix.SYS_OPENAT, []uint32{3, 0, unix.O_RDONLY, 0o6000}},
		{retAllow, unix.SYS_OPENAT, []uint32{3, 0, unix.O_CREAT, 0o644}},
		{eperm, unix.SYS_OPENAT, []uint32{3, 0, unix.O_CREAT, 0o4755}},
		{eperm, unix.SYS_OPENAT, []uint32{3, 0, unix.O_TMPFILE, 0o4755}},
	} {
		if got := verdict(t, f, auditArch, uint32(c.number), c.args...); got != c.want {
			t.Errorf("call %d with %#x: action = %#x, want %#x", c.number, c.args, got, c.want)
		}
	}
	if got := verdict(t, f, auditArch^1, unix.SYS_READ); got != retKill {
		t.Errorf("call of another architecture: action = %#x, want %#x", got, uint32(retKill))
	}
	for _, number := range []uint32{x32Bit, x32Bit + unix.SYS_READ, ^uint32(0)} {
		if got := verdict(t, f, auditArch, number); got != retKill {
			t.Errorf("call %#x: action = %#x, want %#x", number, got, uint32(retKill))
		}
	}
}
