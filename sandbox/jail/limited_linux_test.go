package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// lowLimits are hard limits below those that a jail sets, as a service manager or a container engine gives them.
func lowLimits() map[int]uint64 {
	return map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 1024, unix.RLIMIT_MEMLOCK: 64 << 10, unix.RLIMIT_SIGPENDING: 512, unix.RLIMIT_FSIZE: 50 << 20,
	}
}

// Ten minutes 4: a jail starts in a worker whose hard limits are lower than a jail's, and which may not raise them.
func TestJailStartsBelowLowHardLimits(t *testing.T) {
	out, err := exec.CommandContext(testkit.Context(t), os.Args[0], "limited", testkit.ShortDir(t)).CombinedOutput()
	if err != nil {
		t.Errorf("start a jail: %v\n%s", err, out)
	}
}

// runLimited starts a jail below lowLimits.
func runLimited(dir string) int {
	for resource, limit := range lowLimits() {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return testkit.Fail(fmt.Errorf("set rlimit %d: %w", resource, err))
		}
	}
	if _, err := Check(filepath.Join(dir, "run")); err != nil {
		return testkit.Fail(err)
	}
	return 0
}

// Ten minutes 4: where a service manager's filter refuses a call, the error names it, up to the last call before the exec.
func TestRefusedCallIsNamed(t *testing.T) {
	out, err := exec.CommandContext(testkit.Context(t), os.Args[0], "refused", testkit.ShortDir(t)).Output()
	testkit.Must(t, err)
	testkit.Contains(t, "error", string(out), "start a jail: install the filter: operation not permitted")
}

// runRefused starts a jail where seccomp is refused, and prints the error.
func runRefused(dir string) int {
	var f filter
	f.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, numberOffset, 0, 0)
	f.ifEqual(unix.SYS_SECCOMP)
	f.ret(errno(unix.EPERM))
	f.ret(retAllow)
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return testkit.Fail(err)
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return testkit.Fail(e)
	}
	_, err := Check(filepath.Join(dir, "run"))
	fmt.Println(err)
	return 0
}

// Ten minutes 9: the check runs where the worker's jails will run. A temporary folder without rights to execute does not matter.
func TestCheckUsesTheRunFolder(t *testing.T) {
	noexec := t.TempDir()
	if err := unix.Mount("none", noexec, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Skipf("mount a tmpfs: %v; run the test as root", err)
	}
	defer func() { testkit.Must(t, unix.Unmount(noexec, 0)) }()
	run := filepath.Join(testkit.ShortDir(t), "run")
	t.Setenv("TMPDIR", noexec)
	_, err := Check(run)
	testkit.Must(t, err)
	left, err := filepath.Glob(filepath.Join(run, "c*"))
	testkit.Must(t, err)
	testkit.Equal(t, "folders that the check left", len(left), 0)
	if _, err := Check(noexec); err == nil {
		t.Error("check below a folder that is mounted noexec: no error, want the one that its jails would have")
	}
}
