package docker

import (
	"encoding/json"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The filter is Docker's newest default, whatever the engine's age, without what a command has no use for: other tables of call
// numbers, looking into other processes, sockets but local and IP ones (an engine's older default lets AF_VSOCK through, which
// reaches past the network namespace to a virtual machine's host), files that would run as their owner.

// dropped are calls of the default that are refused. The arguments of openat2 lie in memory, where no filter sees the mode.
var dropped = []string{
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
	"io_uring_setup", "io_uring_enter", "io_uring_register", "modify_ldt", "name_to_handle_at", "socketcall", "openat2", "memfd_secret",
}

// setID are the mode bits that make a program run as its owner or group.
const setID = unix.S_ISUID | unix.S_ISGID

// creates are the bits of open's flags with which its mode counts: O_CREAT, and O_TMPFILE without its O_DIRECTORY.
const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// filter is the profile as an engine takes it.
func filter() (string, error) {
	profile := seccomp.DefaultProfile()
	for i := range profile.ArchMap {
		profile.ArchMap[i].SubArches = nil
	}
	looked := lookedAt()
	var rest []*seccomp.Syscall
	for _, rule := range profile.Syscalls {
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool {
			return slices.Contains(dropped, name) || slices.ContainsFunc(looked, func(l *seccomp.Syscall) bool { return slices.Contains(l.Names, name) })
		})
		if len(rule.Names) > 0 {
			rest = append(rest, rule)
		}
	}
	nosys := uint(unix.ENOSYS) // so that programs fall back on openat
	rest = append(rest, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{"openat2"}, Action: specs.ActErrno, ErrnoRet: &nosys}})
	profile.Syscalls = append(rest, looked...)
	b, err := json.Marshal(profile)
	return string(b), err
}

// lookedAt are the calls that are allowed in part; several rules for one call are ways to be allowed.
func lookedAt() []*seccomp.Syscall {
	var rules []*seccomp.Syscall
	allow := func(name string, args ...specs.LinuxSeccompArg) {
		rules = append(rules, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}})
	}
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		allow("socket", is(0, family))
	}
	allow("socket", is(0, unix.AF_NETLINK), is(2, unix.NETLINK_ROUTE)) // getifaddrs asks it
	// The supervisor has the same user, and a limit lowered under it would end the sandbox.
	allow("prlimit64", is(0, 0))
	for name, mode := range map[string]uint{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mkdir": 1, "mkdirat": 2, "mknod": 1, "mknodat": 2} {
		allow(name, none(mode, setID))
	}
	for name, flags := range map[string]uint{"open": 1, "openat": 2} {
		allow(name, none(flags, creates))
		allow(name, none(flags+1, setID))
	}
	return rules
}

// is holds for an argument of this value; none for one without these bits.
func is(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
}

func none(index uint, bits uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: bits, Op: specs.OpMaskedEqual}
}
