package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// workspacePath is the workspace as processes see it.
	workspacePath = "/workspace"
	// userName is the name of the user that processes run as.
	userName = "sandboxuser"
)

// rootEntry is an entry of a jail's root folder: a bind mount, or a symbolic link when target is set.
type rootEntry struct {
	name   string
	target string // of the symbolic link
	source string // the host's path that is bound
	dir    bool
}

// hostEntries lists the only folders and links of the host that a jail sees, and the jail's /etc where one is given.
func hostEntries(etc string) ([]rootEntry, error) {
	var list []rootEntry
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		e, ok, err := readEntry("/", name)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, e)
		}
	}
	if etc == "" {
		return list, nil
	}
	return append(list, rootEntry{name: "etc", source: etc, dir: true}), nil
}

// reserved are the names that a jail creates itself, whatever its root file system holds.
var reserved = map[string]bool{"proc": true, "sys": true, "dev": true, "tmp": true, "run": true, "workspace": true}

// folderEntries lists the entries of a folder that is the root file system.
func folderEntries(dir string) ([]rootEntry, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []rootEntry
	for _, n := range names {
		if reserved[n.Name()] {
			continue
		}
		e, ok, err := readEntry(dir, n.Name())
		if err != nil {
			return nil, err
		}
		// /var/tmp is created while the host's files are visible: a link in place of /var could lead there.
		if ok && (e.name != "var" || e.target == "") {
			list = append(list, e)
		}
	}
	return list, nil
}

// readEntry returns false for what a jail does not get: a missing file, a socket, a device.
func readEntry(dir, name string) (rootEntry, bool, error) {
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return rootEntry{}, false, nil
	case err != nil:
		return rootEntry{}, false, err
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return rootEntry{name: name, target: target}, err == nil, err
	case info.IsDir(), info.Mode().IsRegular():
		return rootEntry{name: name, source: path, dir: info.IsDir()}, true, nil
	}
	return rootEntry{}, false, nil
}

// devices are bound from the host, because a user namespace permits no new device files.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// maskedProc lists what this host's /proc reveals of the host or the kernel to every user, and kcore. Other files of /proc are for
// root alone, or reveal nothing without a capability.
func maskedProc() (files, dirs []string) {
	for _, name := range []string{"kcore", "keys", "key-users", "timer_list", "latency_stats", "sched_debug", "kallsyms", "modules", "interrupts", "softirqs"} {
		if info, err := os.Lstat("/proc/" + name); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	for _, name := range []string{"acpi", "asound", "scsi", "driver"} {
		if entries, err := os.ReadDir("/proc/" + name); err == nil && len(entries) > 0 {
			dirs = append(dirs, name)
		}
	}
	return files, dirs
}

const (
	roBind  = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	rwBind  = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	devBind = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
)

// workspaceBind are the attributes of the workspace's mount.
func (c *jailConfig) workspaceBind() uint64 {
	if c.readOnly {
		return roBind
	}
	return rwBind
}

// buildRoot builds the jail's tree on a tmpfs at c.root and pivots to it.
func (p *program) buildRoot(c *jailConfig) {
	p.call("make the host's mounts private", unix.SYS_MOUNT, "none", "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	p.call("mount the root", unix.SYS_MOUNT, "root", c.root, "tmpfs", unix.MS_NOSUID|unix.MS_NOATIME, "mode=755,size=256k,nr_inodes=256")
	for _, e := range c.entries {
		to := c.root + "/" + e.name
		switch {
		case e.target != "":
			p.call("link "+e.name, unix.SYS_SYMLINKAT, e.target, atFDCWD, to)
			continue
		case e.dir:
			p.mkdir(to, 0o755)
		default:
			p.writeFile(to, "", unix.O_CREAT, 0o644)
		}
		p.bind(e.source, to, roBind, c.userns)
	}
	p.mountDev(c)
	p.mountProc(c)
	p.mkdir(c.root+"/run", 0o755)
	p.writeFile(c.root+"/run/passwd", fmt.Sprintf("root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n%s:x:%d:%d:%s:%s:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		userName, c.uid, c.uid, userName, workspacePath), unix.O_CREAT, 0o644)
	p.writeFile(c.root+"/run/group", fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", userName, c.uid), unix.O_CREAT, 0o644)
	p.mkdir(c.root+"/tmp", 0o755)
	p.mkdir(c.root+"/var", 0o755)
	p.call("link /var/tmp", unix.SYS_SYMLINKAT, "../tmp", atFDCWD, c.root+"/var/tmp").Optional = true
	p.mkdir(c.root+workspacePath, 0o755)
	if c.userns {
		// Only a process inside the user namespace has the right to clone this mount.
		p.bind(c.workspace, c.root+workspacePath, c.workspaceBind(), true)
	}
	p.pivot(c)
}

// mountPrivate mounts what belongs to this jail alone, and makes the root read-only.
func (p *program) mountPrivate(c *jailConfig) {
	p.mountTmpfs("tmp", "/tmp", c.limits.TmpBytes, 0)
	p.mountTmpfs("shm", "/dev/shm", c.limits.TmpBytes, unix.MS_NOEXEC)
	if !c.userns {
		p.call("bind the workspace", unix.SYS_MOVE_MOUNT, c.workspaceFD(), "", atFDCWD, workspacePath, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	p.makeReadOnly("/", unix.MOUNT_ATTR_NOSUID)
}

func (p *program) mkdir(path string, mode int) {
	c := p.call("create "+path, unix.SYS_MKDIRAT, atFDCWD, path, mode)
	// The root file system may have its own /var, which is then already bound.
	c.Optional = strings.HasSuffix(path, "/var")
}

// mountTmpfs mounts bounded memory that every process can write to.
func (p *program) mountTmpfs(name, to string, size int64, flags uintptr) {
	p.call("mount "+to, unix.SYS_MOUNT, name, to, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags,
		fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", size, max(size>>12, 1024)))
}

func (p *program) mountDev(c *jailConfig) {
	dev := c.root + "/dev"
	p.mkdir(dev, 0o755)
	for _, name := range devices {
		p.writeFile(dev+"/"+name, "", unix.O_CREAT, 0o666)
		p.bind("/dev/"+name, dev+"/"+name, devBind, false)
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		p.call("link /dev/"+name, unix.SYS_SYMLINKAT, target, atFDCWD, dev+"/"+name)
	}
	p.mkdir(dev+"/pts", 0o755)
	p.call("mount /dev/pts", unix.SYS_MOUNT, "devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64")
	p.mkdir(dev+"/shm", 0o755)
}

// mountProc makes all of /proc read-only. Besides the dangerous files this covers oom_score_adj, by which a process could exempt
// itself from the memory limit.
func (p *program) mountProc(c *jailConfig) {
	proc := c.root + "/proc"
	p.mkdir(proc, 0o555)
	p.call("mount /proc", unix.SYS_MOUNT, "proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0)
	for _, name := range c.maskedFiles {
		p.call("mask /proc/"+name, unix.SYS_MOUNT, "/dev/null", proc+"/"+name, 0, unix.MS_BIND, 0)
	}
	for _, name := range c.maskedDirs {
		p.call("mask /proc/"+name, unix.SYS_MOUNT, "none", proc+"/"+name, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2")
	}
	p.makeReadOnly(proc, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

func (p *program) makeReadOnly(path string, attributes uint64) {
	p.call("make "+path+" read-only", unix.SYS_MOUNT_SETATTR, atFDCWD, path, 0,
		words(attributes|unix.MOUNT_ATTR_RDONLY, 0, 0, 0), sizeofMountAttr)
}

// pivot makes the tree the root and unmounts the host's root.
func (p *program) pivot(c *jailConfig) {
	p.call("enter the new root", unix.SYS_CHDIR, c.root)
	p.call("pivot to the new root", unix.SYS_PIVOT_ROOT, ".", ".")
	p.call("unmount the host's root", unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	p.call("enter the root", unix.SYS_CHDIR, "/")
}
