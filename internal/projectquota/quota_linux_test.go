package projectquota_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Hardening 3: where the file system has project quotas, nothing fills it between two measurements. Few kernels have them for both file
// systems, so the guest runs on one that does, as a program.
func TestQuotas(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("User Mode Linux is for amd64 only")
	}
	dir, err := os.MkdirTemp("/dev/shm", "sluice-quota-") // for the machine's memory and disks: a real disk takes several times as long
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.RemoveAll(t, dir) })
	disks := map[string][]string{
		"ext4": {"-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota"},
		"xfs":  {"-q", "-f"},
	}
	for kind, args := range disks {
		disk := filepath.Join(dir, kind)
		testkit.Must(t, os.WriteFile(disk, nil, 0o600))
		testkit.Must(t, os.Truncate(disk, 400<<20))
		out, err := exec.Command(tool(t, "mkfs."+kind), append(args, disk)...).CombinedOutput()
		if err != nil {
			t.Fatalf("make a file system %s: %v\n%s", kind, err, out)
		}
	}
	kernel := tool(t, "linux.uml")
	var modules []string
	for _, name := range []string{"quota_tree.ko", "quota_v2.ko"} { // the second needs the first
		found, err := filepath.Glob(filepath.Join("/usr/lib/uml/modules/*/kernel/fs/quota", name))
		testkit.Must(t, err)
		modules = append(modules, found...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Timeout)
	defer cancel()
	guest := testkit.Build(t, "internal/projectquota/quotatest")
	// cpu.all: the kernel keeps the registers of SSE alone between two programs.
	cmd := exec.CommandContext(ctx, guest, "boot", kernel, "GOMAXPROCS=1", "GODEBUG=cpu.all=off", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "mem=256M", "quiet", "con=null", "con0=null,fd:1",
		"init="+guest, "ubd0="+filepath.Join(dir, "ext4"), "ubd1="+filepath.Join(dir, "xfs"), "MODULES="+strings.Join(modules, ","))
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir) // for its sockets, and for its memory
	out, err := cmd.CombinedOutput()
	// The guest says that it is done once it has mounted, tested and unmounted all. That kernel may crash as it halts after that.
	if !bytes.Contains(out, []byte("guest done")) {
		t.Fatalf("the guest: %v\n%s", err, out)
	}
	for kind, full := range map[string]string{"ext4": "EDQUOT", "xfs": "ENOSPC"} {
		testkit.Equal(t, kind+" with project quotas", linesOf(out, kind+" prjquota "), strings.ReplaceAll(strings.TrimSpace(`
enforced true
set <nil>
first write 8 MiB: FULL
first allocate 8 MiB: FULL
first folders 200 FULL
set <nil>
second-writes <nil>
set <nil>
move-between false
share <nil>
move-shared true
set <nil>
inner-shares true
contained false <nil>
cleared 12 MiB: <nil>`), "FULL", full))
		testkit.Equal(t, kind+" without", linesOf(out, kind+" - "), strings.TrimSpace(`
enforced false
set <nil>
first write 12 MiB: <nil>
first allocate 12 MiB: <nil>
first folders 300 <nil>
set <nil>
second-writes <nil>
set <nil>
move-between true
share <nil>
move-shared true
set <nil>
inner-shares true
contained false <nil>
cleared 12 MiB: <nil>`))
	}
}

// tool is the path of an administrator's program, which may be in no folder of a user's PATH.
func tool(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	testkit.Missing(t, name, "apt-get install user-mode-linux xfsprogs e2fsprogs")
	return ""
}

// linesOf are the lines with a prefix, without it.
func linesOf(out []byte, prefix string) string {
	var all []string
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), prefix); ok {
			all = append(all, rest)
		}
	}
	return strings.Join(all, "\n")
}
