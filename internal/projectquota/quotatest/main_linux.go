package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/projectquota"
)

// tenant is the user who owns workspaces here: root is not held to quotas.
const tenant = 1000

func main() {
	if len(os.Args) == 4 && os.Args[1] == "child" {
		if way, dir := os.Args[2], os.Args[3]; way == "set" {
			fmt.Println(projectquota.Enforced(dir), projectquota.Set(dir, maxBytes, maxEntries))
		} else {
			attack(way, dir)
		}
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "boot" {
		fmt.Println("boot:", bootOn(os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
	err := boot()
	for i, kind := range []string{"ext4", "xfs"} {
		if err == nil {
			err = run(kind, "/dev/ubd"+string(rune('a'+i)))
		}
	}
	if err != nil {
		fmt.Println("guest failed:", err)
	} else {
		fmt.Println("guest done")
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// boot mounts what programs expect, and loads the modules that the command line names.
func boot() error {
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"tmpfs", "/mnt"}} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for _, path := range strings.Split(os.Getenv("MODULES"), ",") {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.FinitModule(int(f.Fd()), "", 0), f.Close()); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

// run runs the cases on a disk with project quotas, and then on one without.
func run(kind, disk string) error {
	at := filepath.Join("/mnt", kind)
	for _, quotas := range []string{"prjquota", "-"} {
		report := func(what ...any) { fmt.Println(append([]any{kind, quotas}, what...)...) }
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(disk, at, kind, 0, strings.Trim(quotas, "-")); err != nil {
			return fmt.Errorf("mount %s: %w", kind, err)
		}
		if err := cases(filepath.Join(at, "threads", quotas), report); err != nil {
			return err
		}
		if err := unix.Unmount(at, 0); err != nil {
			return err
		}
	}
	return nil
}

// The bounds of each folder.
const (
	maxBytes   = 8 << 20
	maxEntries = 200
)

func cases(root string, report func(...any)) error {
	var failed error
	folder := func(name string) string {
		dir := filepath.Join(root, name)
		failed = errors.Join(failed, os.MkdirAll(dir, 0o755), os.Chown(dir, tenant, tenant))
		return dir
	}
	limited := func(name string) string {
		dir := folder(name)
		report("set", projectquota.Set(dir, maxBytes, maxEntries))
		return dir
	}
	file := func(dir, name string) string {
		path := filepath.Join(dir, name)
		failed = errors.Join(failed, os.WriteFile(path, []byte("x"), 0o644))
		return path
	}
	moves := func(from, dir string) bool { return os.Rename(from, filepath.Join(dir, filepath.Base(from))) == nil }

	report("enforced", projectquota.Enforced(folder("first")))
	first := limited("first")
	for _, way := range []string{"write", "allocate", "folders"} {
		report("first", way, try(way, first))
	}
	second := limited("second")
	report("second-writes", os.WriteFile(filepath.Join(second, "f"), nil, 0o644))

	// A member of a pool takes the content of the workspace over.
	member := limited("member")
	report("move-between", moves(file(second, "f"), member))
	report("share", projectquota.Share(member, second))
	report("move-shared", moves(file(second, "g"), member))

	// What belongs to the project of the folder above it stays there: an administrator's.
	inner := limited("second/inner")
	report("inner-shares", moves(file(second, "h"), inner))

	report("contained", tryAs(contained(), "set", folder("contained")))

	projectquota.Clear(first)
	report("cleared", try("write", first))
	return failed
}

// try runs a way of the attack as the tenant.
func try(way, dir string) string {
	return tryAs(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tenant, Gid: tenant}}, way, dir)
}

// contained is the root of a container, who may set no quotas of the machine.
func contained() *syscall.SysProcAttr {
	root := []syscall.SysProcIDMap{{Size: 1}}
	return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: root, GidMappings: root}
}

// tryAs runs this program again as another user.
func tryAs(who *syscall.SysProcAttr, way, dir string) string {
	cmd := exec.Command("/proc/self/exe", "child", way, dir)
	cmd.SysProcAttr = who
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// The most that an attack tries.
const (
	mostMiB     = 12
	mostFolders = 300
)

// attack fills a folder in one of the ways that a measurement may see late, and leaves nothing in it but folders.
func attack(way, dir string) {
	if way == "folders" {
		var err error
		n := 0
		for ; err == nil && n < mostFolders; n++ {
			err = os.Mkdir(filepath.Join(dir, fmt.Sprint(n)), 0o755)
		}
		fmt.Println(n, number(err))
		return
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err == nil {
		err = os.Remove(f.Name()) // it has no name from here on
	}
	var size int64
	block := make([]byte, 64<<10) // one for all: memory is slow in a kernel that is a program
	for n := len(block); err == nil && size < mostMiB<<20; size += int64(n) {
		if way == "allocate" {
			err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, int64(n))
		} else {
			n, err = f.Write(block)
		}
	}
	fmt.Println((size+1<<19)>>20, "MiB:", number(err)) // rounded: blocks that name blocks count too
}

// number is the name of an error of the system.
func number(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return unix.ErrnoName(e)
	}
	return fmt.Sprint(err)
}
