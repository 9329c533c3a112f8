package deploy

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m, testkit.Programs{"boot": func(args []string) int { return testkit.Fail(boot(args[0])) }})
}

// Ten minutes 4: the unit starts `sluice up` under the real systemd, in namespaces of its own, and the README's check runs an isolated
// command through it. The check fails once the service is stopped: it starts no server of its own.
func TestUnitRunsIsolatedCommands(t *testing.T) {
	m := bootMachine(t)
	m.waitFor(t, "sluice is up")
	check := readmeLine(t, "sudo ")
	testkit.Equal(t, "output of the README's check", m.run(t, check), "sandbox\n")
	status := m.run(t, "cat /proc/$(systemctl show --value -p MainPID sluice)/status")
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000", "Uid:\t990\t"} {
		testkit.Contains(t, "status of the service", status, want)
	}
	m.run(t, "systemctl stop sluice")
	if out, err := m.command(t.Context(), check).CombinedOutput(); err == nil {
		t.Errorf("the check without the service: no error, output %q, want an error", out)
	}
}

// Newer versions of systemd leave nothing but the new /proc in a service's namespace: there, these settings would keep jails from
// mounting theirs. The version of this machine may be older.
func TestUnitCoversNothingInProc(t *testing.T) {
	unit, err := os.ReadFile("systemd/sluice.service")
	testkit.Must(t, err)
	for line := range strings.Lines(string(unit)) {
		for _, covering := range []string{"ProtectKernelTunables=", "ProtectKernelLogs=", "ProcSubset=", "InaccessiblePaths=/proc", "ReadOnlyPaths=/proc"} {
			if strings.HasPrefix(line, covering) {
				t.Errorf("the unit has %q, want no setting that covers parts of /proc", line)
			}
		}
	}
}

// readmeLine is the README's line with this beginning, without it and without the comment.
func readmeLine(t *testing.T, prefix string) string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	testkit.Must(t, err)
	found := ""
	for line := range strings.Lines(string(readme)) {
		command, _, checked := strings.Cut(strings.TrimSpace(line), "     # sandbox")
		if rest, ok := strings.CutPrefix(command, prefix); ok && checked {
			found = rest
		}
	}
	if found == "" {
		t.Fatalf("README.md has no line %q with the comment \"# sandbox\"", prefix)
	}
	return found
}

// machine is a systemd that runs the unit.
type machine struct {
	pid    int
	output *bufio.Scanner
}

// bootMachine starts systemd with nothing but the unit, in namespaces on this machine's files.
func bootMachine(t *testing.T) *machine {
	t.Helper()
	if _, err := os.Stat(systemd); err != nil || os.Geteuid() != 0 {
		testkit.Missing(t, "systemd, or the right to run it as root", "sudo apt-get install systemd")
	}
	dir := t.TempDir()
	testkit.Must(t, os.Chmod(dir, 0o755))
	testkit.BuildAt(t, filepath.Join(dir, "sluice"), "../cmd/sluice")
	unit, err := os.ReadFile("systemd/sluice.service")
	testkit.Must(t, err)
	files := map[string]string{
		"sluice.service": string(unit),
		// The output goes to the test, and the status of the unit stays the shipped one.
		"sluice.service.d/output.conf": "[Service]\nStandardOutput=append:/run/test/output\nStandardError=append:/run/test/output\n",
		"default.target":               "[Unit]\nWants=sluice.service\n",
	}
	for _, target := range []string{"sysinit", "basic", "network", "shutdown", "umount"} {
		files[target+".target"] = "[Unit]\n"
	}
	for name, text := range files {
		path := filepath.Join(dir, "units", name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	fifo := filepath.Join(dir, "output")
	testkit.Must(t, unix.Mkfifo(fifo, 0o600))
	// Open for writing too, so that neither end waits for the other.
	output, err := os.OpenFile(fifo, os.O_RDWR, 0)
	testkit.Must(t, err)
	testkit.Must(t, output.SetReadDeadline(time.Now().Add(testkit.Timeout)))
	cgroup, err := os.Open(newCgroup(t))
	testkit.Must(t, err)
	cmd := exec.Command("/proc/self/exe", "boot", dir)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
		UseCgroupFD: true, CgroupFD: int(cgroup.Fd()),
	}
	testkit.Must(t, cmd.Start())
	testkit.Must(t, cgroup.Close())
	t.Cleanup(func() {
		testkit.Must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		testkit.Must(t, output.Close())
	})
	return &machine{pid: cmd.Process.Pid, output: bufio.NewScanner(output)}
}

// newCgroup makes the cgroup v2 that is the root of the machine's, and removes it after the test.
func newCgroup(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
			continue
		}
		dir := filepath.Join(root, "sluice-test-"+strconv.Itoa(os.Getpid()))
		testkit.Must(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { testkit.Must(t, removeCgroup(dir)) })
		return dir
	}
	testkit.Missing(t, "cgroup v2", "mount -t cgroup2 none /sys/fs/cgroup/unified")
	return ""
}

// removeCgroup removes a cgroup whose processes are gone, and those below it.
func removeCgroup(dir string) error {
	below, err := os.ReadDir(dir)
	for _, e := range below {
		if e.IsDir() {
			err = errors.Join(err, removeCgroup(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, unix.Rmdir(dir))
}

// waitFor waits for a line with this text in the unit's output.
func (m *machine) waitFor(t *testing.T, text string) {
	t.Helper()
	for m.output.Scan() {
		t.Log(m.output.Text())
		if strings.Contains(m.output.Text(), text) {
			return
		}
	}
	t.Fatalf("the unit's output ended without %q: %v", text, m.output.Err())
}

// run runs a shell command on the machine, as root, and returns its standard output.
func (m *machine) run(t *testing.T, script string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := m.command(testkit.Context(t), script)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", script, err, out, stderr.String())
	}
	return string(out)
}

func (m *machine) command(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(m.pid), "-m", "-p", "-n", "-u", "-i", "-C", "/bin/sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/run"}
	return cmd
}

const systemd = "/lib/systemd/systemd"

// boot runs in the machine's namespaces: it hides this machine's units and state, and becomes systemd.
func boot(dir string) error {
	mount := func(source, target, fstype, data string) error {
		return os.NewSyscallError("mount "+target, unix.Mount(source, target, fstype, 0, data))
	}
	bind := func(from, to string) error {
		return os.NewSyscallError("bind "+to, unix.Mount(from, to, "", unix.MS_BIND, ""))
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err // the mounts below would be this machine's
	}
	var err error
	for _, hidden := range []string{"/run", "/etc/systemd", "/usr/lib/systemd/system-generators", "/var/lib", "/usr/local/bin"} {
		// What is bound below comes from the test's folder, which may be in /run.
		if hidden == "/run" {
			err = errors.Join(err, bind(dir, "/mnt"))
		}
		err = errors.Join(err, mount("none", hidden, "tmpfs", "mode=755"))
	}
	for _, name := range []string{"passwd", "group"} {
		text, readErr := os.ReadFile("/etc/" + name)
		entry := "sluice:x:990:\n"
		if name == "passwd" {
			entry = "sluice:x:990:990::/var/lib/sluice:/usr/sbin/nologin\n"
		}
		path := "/run/" + name
		err = errors.Join(err, readErr, os.WriteFile(path, append(text, entry...), 0o644), bind(path, "/etc/"+name))
	}
	err = errors.Join(err, os.Mkdir("/run/test", 0o755), bind("/mnt", "/run/test"), bind("/mnt/units", "/usr/lib/systemd/system"),
		os.WriteFile("/usr/local/bin/sluice", nil, 0o755), bind("/mnt/sluice", "/usr/local/bin/sluice"),
		unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH), mount("none", "/sys/fs/cgroup", "cgroup2", ""),
		unix.Unmount("/proc", unix.MNT_DETACH), mount("proc", "/proc", "proc", ""), raiseLoopback())
	if err != nil {
		return err
	}
	return unix.Exec(systemd, []string{"systemd", "--system", "--log-target=console", "--log-level=warning"}, []string{"container=test"})
}

// raiseLoopback brings up the loopback interface of a new network namespace.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return errors.Join(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request), unix.Close(fd))
}
