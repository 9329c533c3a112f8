package hostproc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// headless ends its first thread, says so, and stays.
func headless([]string) int {
	endFirstThread()
	return 1
}

// announce says that the first thread has ended.
func announce() {
	for {
		stat, err := os.ReadFile("/proc/self/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
	}
	fmt.Println("headless")
	select {}
}

// endFirstThread ends the first thread once a goroutine runs on it. Those that run on others keep these, so that its turn comes. Nothing else may
// run before, since it could keep the first.
func endFirstThread() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go announce()
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	go endFirstThread()
	select {}
}

// Hardening 2: a process whose first thread has ended, as a zombie has, is one that runs. Only cgroups v1 are killed by their members, and only
// root may make one.
func TestProcessWithoutItsFirstThread(t *testing.T) {
	self, err := os.Executable()
	testkit.Must(t, err)
	cmd := exec.Command(self, "headless")
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}()
	_, err = bufio.NewReader(out).ReadString('\n')
	testkit.Must(t, err)
	ref, err := RefOf(cmd.Process.Pid)
	testkit.Must(t, err)
	p, err := Find(ref)
	testkit.Must(t, err)
	dir := filepath.Join("/sys/fs/cgroup/pids", fmt.Sprint("sluice-test-", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		p.Kill()
		<-p.Gone
		t.Skip("no cgroup v1 for this user: ", err)
	}
	defer func() { _ = os.Remove(dir) }() // fails only while a process is in it
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	if !KillCgroup([]string{dir}) {
		t.Error("the cgroup was not killed")
	}
	<-p.Gone
}

// The engine removes a cgroup as soon as its last process has ended, between any two calls of KillCgroup.
func TestRemovedCgroupCountsAsKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.Missing(t, "root, to make a cgroup", "sudo -E go test ./sandbox/hostproc")
	}
	parent := "/sys/fs/cgroup/pids" // v1
	if _, err := os.Stat(parent); err != nil {
		parent = "/sys/fs/cgroup"
	}
	dir := filepath.Join(parent, fmt.Sprint("sluice-test-removed-", os.Getpid()))
	for range 500 {
		testkit.Must(t, os.Mkdir(dir, 0o755))
		removed := make(chan error)
		go func() { removed <- os.Remove(dir) }()
		killed := KillCgroup([]string{dir})
		testkit.Must(t, <-removed)
		if !killed {
			t.Fatal("a cgroup that was removed meanwhile counts as not killed")
		}
	}
}

// The first process of a pid namespace may have a higher pid than the others in it.
func TestInitIsKilledFirst(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.Missing(t, "root, to make a pid namespace", "sudo -E go test ./sandbox/hostproc")
	}
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	testkit.Must(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}()
	self, first, gone := os.Getpid(), cmd.Process.Pid, 1<<30
	testkit.Equal(t, "order", initsFirst([]int{self, gone, first}), []int{first, self, gone})
}
