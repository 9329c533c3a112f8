package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// home is the workspace as processes see it.
const home = "/workspace"

// entry is one thing at the top of a jail's root.
type entry struct {
	name   string
	target string // of a symbolic link; empty for a bind
	source string // what is bound
	dir    bool
}

// hostRoot lists what of the host a jail sees: nothing that is not named here.
func hostRoot(etc string) ([]entry, error) {
	var list []entry
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		e, ok, err := look("/", name)
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
	return append(list, entry{name: "etc", source: etc, dir: true}), nil
}

// own are the names a jail makes itself, whatever a root folder holds under them.
var own = map[string]bool{"proc": true, "sys": true, "dev": true, "tmp": true, "run": true, "workspace": true}

// folderRoot lists what is in a folder that was given as root.
func folderRoot(dir string) ([]entry, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []entry
	for _, n := range names {
		if own[n.Name()] {
			continue
		}
		e, ok, err := look(dir, n.Name())
		if err != nil {
			return nil, err
		}
		// A link in var is made while the host is in sight: it must not be led there.
		if ok && (e.name != "var" || e.target == "") {
			list = append(list, e)
		}
	}
	return list, nil
}

// look sees what a name is; false where it is nothing to show: missing, a socket, a device.
func look(dir, name string) (entry, bool, error) {
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return entry{}, false, nil
	case err != nil:
		return entry{}, false, err
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return entry{name: name, target: target}, err == nil, err
	case info.IsDir(), info.Mode().IsRegular():
		return entry{name: name, source: path, dir: info.IsDir()}, true, nil
	}
	return entry{}, false, nil
}

// devices are bound from the host: in a user namespace none can be made.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// masked are what /proc tells of the host or of the kernel that anybody may read, and kcore; those there are. The rest is root's,
// or says nothing to who has no capability.
func masked() (files, dirs []string) {
	for _, name := range []string{"kcore", "keys", "key-users", "timer_list", "latency_stats", "sched_debug", "kallsyms", "modules"} {
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

// root builds the jail's tree on a tmpfs at j.base and makes it the root.
func (p *program) root(j *jailed) {
	p.call("keep mounts from spreading", unix.SYS_MOUNT, "none", "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	p.call("mount the root", unix.SYS_MOUNT, "root", j.base, "tmpfs", unix.MS_NOSUID|unix.MS_NOATIME, "mode=755,size=256k,nr_inodes=256")
	for _, e := range j.entries {
		to := j.base + "/" + e.name
		switch {
		case e.target != "":
			p.call("link "+e.name, unix.SYS_SYMLINKAT, e.target, atFDCWD, to)
			continue
		case e.dir:
			p.mkdir(to, 0o755)
		default:
			p.file(to, "", unix.O_CREAT, 0o644)
		}
		p.bind(e.source, to, roBind, j.userns)
	}
	p.dev(j)
	p.proc(j)
	p.mkdir(j.base+"/run", 0o755)
	p.file(j.base+"/run/passwd", fmt.Sprintf("root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n%s:x:%d:%d:%s:%s:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		userName, j.uid, j.uid, userName, home), unix.O_CREAT, 0o644)
	p.file(j.base+"/run/group", fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", userName, j.uid), unix.O_CREAT, 0o644)
	p.mkdir(j.base+"/tmp", 0o755)
	p.mkdir(j.base+"/var", 0o755)
	p.call("link /var/tmp", unix.SYS_SYMLINKAT, "../tmp", atFDCWD, j.base+"/var/tmp").Optional = true
	p.mkdir(j.base+home, 0o755)
	if j.userns {
		// Here nobody outside could take the mount: the right to is inside alone.
		p.bind(j.workspace, j.base+home, rwBind, true)
	}
	p.pivot(j)
}

// own adds to the root what is this jail's, and closes it.
func (p *program) own(j *jailed) {
	p.tmpfs("tmp", "/tmp", j.limits.TmpBytes, 0)
	p.tmpfs("shm", "/dev/shm", j.limits.TmpBytes, unix.MS_NOEXEC)
	if !j.userns {
		p.call("bind the workspace", unix.SYS_MOVE_MOUNT, j.workspaceFD(), "", atFDCWD, home, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	p.readOnly("/", unix.MOUNT_ATTR_NOSUID)
}

// userName is who processes are.
const userName = "sandboxuser"

func (p *program) mkdir(path string, mode int) {
	c := p.call("make "+path, unix.SYS_MKDIRAT, atFDCWD, path, mode)
	// A folder given as root may have a var of its own, which was bound.
	c.Optional = strings.HasSuffix(path, "/var")
}

// tmpfs mounts memory that anybody can write to, within bounds.
func (p *program) tmpfs(name, to string, size int64, flags uintptr) {
	p.call("mount "+to, unix.SYS_MOUNT, name, to, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags,
		fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", size, max(size>>12, 1024)))
}

func (p *program) dev(j *jailed) {
	dev := j.base + "/dev"
	p.mkdir(dev, 0o755)
	for _, name := range devices {
		p.file(dev+"/"+name, "", unix.O_CREAT, 0o666)
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

// proc is read-only as a whole. That is more than masking its dangerous files, and closes oom_score_adj, by which a process
// could otherwise put itself out of the memory limit's reach.
func (p *program) proc(j *jailed) {
	proc := j.base + "/proc"
	p.mkdir(proc, 0o555)
	p.call("mount /proc", unix.SYS_MOUNT, "proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0)
	for _, name := range j.maskedFiles {
		p.call("mask /proc/"+name, unix.SYS_MOUNT, "/dev/null", proc+"/"+name, 0, unix.MS_BIND, 0)
	}
	for _, name := range j.maskedDirs {
		p.call("mask /proc/"+name, unix.SYS_MOUNT, "none", proc+"/"+name, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2")
	}
	p.readOnly(proc, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// readOnly makes one mount read-only.
func (p *program) readOnly(path string, attributes uint64) {
	p.call("make "+path+" read-only", unix.SYS_MOUNT_SETATTR, atFDCWD, path, 0,
		words(attributes|unix.MOUNT_ATTR_RDONLY, 0, 0, 0), sizeofMountAttr)
}

// pivot makes the tree the root, and lets go of the host's.
func (p *program) pivot(j *jailed) {
	p.call("enter the root", unix.SYS_CHDIR, j.base)
	p.call("pivot", unix.SYS_PIVOT_ROOT, ".", ".")
	p.call("let go of the host's root", unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	p.call("enter the root", unix.SYS_CHDIR, "/")
}
