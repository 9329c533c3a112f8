package docker

import (
	"encoding/json"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/projectquota"
)

// The profile is Docker's newest default, whatever the engine's version, minus what commands do not need: other architectures' system
// calls, access to other processes, sockets other than unix, TCP and UDP (older defaults allow AF_VSOCK, which reaches the host of a
// virtual machine past the network namespace), and set-user-ID files.

// deniedCalls are calls of the default that are denied. The arguments of openat2 are in memory, where a filter cannot see the mode; the
// contexts of io_setup are counted for the machine (fs.aio-max-nr).
var deniedCalls = []string{
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
	"io_uring_setup", "io_uring_enter", "io_uring_register", "modify_ldt", "name_to_handle_at", "socketcall", "openat2", "memfd_secret", "io_setup",
}

// setIDBits are the mode bits that make a program run as its owner or group.
const setIDBits = unix.S_ISUID | unix.S_ISGID

// socketKinds are the bits of a socket's type beside its flags.
const socketKinds = 0xf

// ioprioProcess is IOPRIO_WHO_PROCESS.
const ioprioProcess = 1

// createFlags are the flags of open for which its mode counts: O_CREAT, and O_TMPFILE without its O_DIRECTORY.
const createFlags = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// seccompProfile returns the profile as JSON, as an engine takes it.
func seccompProfile() (string, error) {
	profile := seccomp.DefaultProfile()
	for i := range profile.ArchMap {
		profile.ArchMap[i].SubArches = nil
	}
	filtered := filteredCalls()
	var rest []*seccomp.Syscall
	for _, rule := range profile.Syscalls {
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool {
			return slices.Contains(deniedCalls, name) || slices.ContainsFunc(filtered, func(l *seccomp.Syscall) bool { return slices.Contains(l.Names, name) })
		})
		if len(rule.Names) > 0 {
			rest = append(rest, rule)
		}
	}
	nosys := uint(unix.ENOSYS) // makes programs fall back to openat, or to threads
	rest = append(rest, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{"openat2", "io_setup"}, Action: specs.ActErrno, ErrnoRet: &nosys}})
	profile.Syscalls = append(rest, filtered...)
	b, err := json.Marshal(profile)
	return string(b), err
}

// filteredCalls are the calls that are allowed for some arguments. A call is allowed when one of its rules matches.
func filteredCalls() []*seccomp.Syscall {
	var rules []*seccomp.Syscall
	allow := func(name string, args ...specs.LinuxSeccompArg) {
		rules = append(rules, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}})
	}
	refuse := func(name string, err unix.Errno, args ...specs.LinuxSeccompArg) {
		number := uint(err)
		rules = append(rules, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActErrno, ErrnoRet: &number, Args: args}})
	}
	for _, other := range argExcept(1, projectquota.Requests()...) {
		allow("ioctl", other)
	}
	allow("socket", argEquals(0, unix.AF_UNIX))
	for _, family := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for kind, protocol := range map[uint64]uint64{unix.SOCK_STREAM: unix.IPPROTO_TCP, unix.SOCK_DGRAM: unix.IPPROTO_UDP} {
			allow("socket", argEquals(0, family), argMasked(1, socketKinds, kind), argEquals(2, 0))
			allow("socket", argEquals(0, family), argMasked(1, socketKinds, kind), argEquals(2, protocol))
		}
		for _, protocol := range []uint64{unix.IPPROTO_MPTCP, unix.IPPROTO_UDPLITE, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6} {
			refuse("socket", unix.EPROTONOSUPPORT, argEquals(0, family), argEquals(2, protocol)) // as where a kernel lacks it: programs go on without
		}
	}
	allow("socket", argEquals(0, unix.AF_NETLINK), argEquals(2, unix.NETLINK_ROUTE)) // for getifaddrs
	// Only for the caller itself: the supervisor has the same user, and a lower limit for it would end the sandbox.
	allow("prlimit64", argEquals(0, 0))
	for _, name := range []string{"sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"} {
		allow(name, argEquals(0, 0)) // a kill would wait for a supervisor that does not run
	}
	allow("setpriority", argEquals(0, unix.PRIO_PROCESS), argEquals(1, 0))
	allow("ioprio_set", argEquals(0, ioprioProcess), argEquals(1, 0))
	for name, mode := range map[string]uint{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mkdir": 1, "mkdirat": 2, "mknod": 1, "mknodat": 2} {
		allow(name, argWithout(mode, setIDBits))
	}
	for name, flags := range map[string]uint{"open": 1, "openat": 2} {
		allow(name, argWithout(flags, createFlags))
		allow(name, argWithout(flags+1, setIDBits))
	}
	return rules
}

// argEquals matches an argument of this value, argWithout one without these bits.
func argEquals(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
}

func argWithout(index uint, bits uint64) specs.LinuxSeccompArg { return argMasked(index, bits, 0) }

// argMasked matches an argument that has this value in the bits of a mask.
func argMasked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}

// argExcept returns rules of which one matches unless the low half of an argument is among the excluded values: a profile cannot say
// "unless". For each value it takes, bit by bit, what begins like it and has another next bit. The kernel ignores the high half.
func argExcept(index uint, excluded ...uint32) (all []specs.LinuxSeccompArg) {
	var split func(mask, begin, bit uint32, among []uint32)
	split = func(mask, begin, bit uint32, among []uint32) {
		switch {
		case len(among) == 0:
			all = append(all, argMasked(index, uint64(mask), uint64(begin)))
		case bit != 0:
			for _, side := range []uint32{0, bit} {
				split(mask|bit, begin|side, bit>>1, slices.DeleteFunc(slices.Clone(among), func(v uint32) bool { return v&bit != side }))
			}
		}
	}
	split(0, 0, 1<<31, excluded)
	return all
}
