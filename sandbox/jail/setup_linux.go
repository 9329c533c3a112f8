package jail

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/sandbox/supervisor/zygote"
)

type jailConfig struct {
	root        string // the host's folder on which the root is built
	supervisor  string // the program's path
	workspace   string
	readOnly    bool // processes cannot write to the workspace
	entries     []rootEntry
	maskedFiles []string
	maskedDirs  []string
	limits      sandbox.Limits
	hostNetwork bool
	filter      []byte
	lastCap     int
	cgroup      *cgroup        // nil without cgroups
	userns      bool           // the worker is an ordinary user
	uid         int            // the user id of the jail's processes, as they see it
	hostUID     int            // the worker's user id, with userns
	inotify     map[string]int // limits by file, with userns
	mapOwners   bool           // the workspace's mount maps owners to the jail's user
	oomScore    string         // the worker's oom_score_adj
	unkillable  bool           // the supervisor may exempt itself from the kernel's OOM killer
}

// The indexes of the descriptors that are sent along: with the setup program, where index 0 is the report, then with the final one.
const (
	finalProgramFD descriptor = 1

	listenerFD descriptor = 0
	connFD     descriptor = 1
	cgroupFD   descriptor = 2 // the first file by which to join a cgroup
)

// oomCountFD is the file that counts the cgroup's OOM kills; it comes after those by which to join.
func (c *jailConfig) oomCountFD() descriptor { return cgroupFD + descriptor(len(c.cgroup.join)) }

// workspaceFD is the workspace's mount.
func (c *jailConfig) workspaceFD() descriptor {
	if c.cgroup == nil {
		return cgroupFD
	}
	return c.oomCountFD() + 1
}

// namespaces are the new namespaces of a jail. The cgroup namespace follows later, from inside the jail's cgroup.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// setupProgram does what is the same for every jail, and waits for the final program. The order of the calls matters.
func (c *jailConfig) setupProgram() *program {
	p := &program{}
	p.Flags = namespaces
	if c.hostNetwork {
		p.Flags &^= unix.CLONE_NEWNET
	}
	p.call("create a session", unix.SYS_SETSID)
	if c.userns {
		p.Flags |= unix.CLONE_NEWUSER
		p.mapUser(c)
	}
	p.setOOMScore(c)
	p.openSupervisor(c)
	if !c.hostNetwork {
		p.raiseLoopback()
	}
	p.buildRoot(c)
	p.call("set the host name", unix.SYS_SETHOSTNAME, "sandbox", len("sandbox"))
	p.call("wait for the final program", zygote.AwaitCalls, finalProgramFD)
	return p
}

// finalProgram does what is particular to one jail. The process joins its cgroups itself: to move another process takes a lock that
// waits for every processor, for milliseconds.
func (c *jailConfig) finalProgram() *program {
	p := &program{}
	if c.cgroup != nil {
		for i, path := range c.cgroup.join {
			p.call("join the cgroup of "+path, unix.SYS_WRITE, cgroupFD+descriptor(i), "0", 1)
		}
	}
	p.call("unshare the cgroup namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	p.mountPrivate(c)
	p.setLimits(c)
	p.dropRights(c)
	p.passDescriptors(c)
	p.execSupervisor(c)
	return p
}

// mapUser maps the worker's user to sandboxuser in the user namespace.
func (p *program) mapUser(c *jailConfig) {
	p.writeFile("/proc/self/uid_map", strconv.Itoa(c.uid)+" "+strconv.Itoa(c.hostUID)+" 1", 0, 0)
	p.writeFile("/proc/self/setgroups", "deny", 0, 0)
	p.writeFile("/proc/self/gid_map", strconv.Itoa(c.uid)+" "+strconv.Itoa(os.Getegid())+" 1", 0, 0)
	for path, value := range c.inotify {
		p.tryWriteFile(path, strconv.Itoa(value)) // /proc/sys is read-only in most containers
	}
}

// inotifyLimits are the limits of a jail with a user namespace: a quarter of those of the user, whose jails share them.
func inotifyLimits() map[string]int {
	limits := make(map[string]int)
	for _, name := range []string{"max_inotify_instances", "max_inotify_watches"} {
		path := "/proc/sys/user/" + name
		if n, err := readNumber(path); err == nil {
			limits[path] = max(1, n/4)
		}
	}
	return limits
}

// neverKill is the score of a process that the OOM killer never selects. It needs CAP_SYS_RESOURCE, which root in a container may
// lack; the supervisor is then only the last to be killed.
const neverKill = "-1000"

func (p *program) setOOMScore(c *jailConfig) {
	const path = "/proc/self/oom_score_adj"
	save(p.call("open "+path, unix.SYS_OPENAT, atFDCWD, path, unix.O_RDWR|unix.O_CLOEXEC), oomScoreFD)
	p.call("write "+path, unix.SYS_WRITE, oomScoreFD, c.supervisorOOMScore(), len(c.supervisorOOMScore()))
}

func (c *jailConfig) supervisorOOMScore() string {
	if c.unkillable {
		return neverKill
	}
	return c.oomScore
}

func (c *jailConfig) processOOMScore() string {
	score, _ := strconv.Atoi(c.oomScore)
	return strconv.Itoa(supervisor.ProcessScore(score))
}

// openSupervisor opens the program while the host's files are visible, through its own read-only mount: /proc/PID/exe must not lead
// to a writable one.
func (p *program) openSupervisor(c *jailConfig) {
	save(p.call("clone the mount of the supervisor", unix.SYS_OPEN_TREE, atFDCWD, c.supervisor, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC), mountFD)
	p.setAttributes("the supervisor", roBind, unix.AT_EMPTY_PATH)
	save(p.call("duplicate the supervisor's descriptor", unix.SYS_FCNTL, mountFD, unix.F_DUPFD_CLOEXEC, 20), supervisorFD)
	p.call("close the supervisor", unix.SYS_CLOSE, mountFD)
}

// raiseLoopback brings up the loopback interface: programs test themselves over it, and it leads nowhere else.
func (p *program) raiseLoopback() {
	ifreq := make([]byte, 40)
	copy(ifreq, "lo")
	ifreq[16] = unix.IFF_UP | unix.IFF_RUNNING
	save(p.call("create a socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0), scratch)
	p.call("bring up the loopback", unix.SYS_IOCTL, scratch, unix.SIOCSIFFLAGS, ifreq)
	p.call("close the socket", unix.SYS_CLOSE, scratch)
}

func (p *program) setLimits(c *jailConfig) {
	limits := [][2]uint64{
		// With 0 the kernel still starts the host's core dump program, where one is set; with 1 it does not.
		{unix.RLIMIT_CORE, 1}, {unix.RLIMIT_FSIZE, uint64(c.limits.FileBytes)},
		{unix.RLIMIT_MEMLOCK, sandbox.MaxLockedBytes}, {unix.RLIMIT_MSGQUEUE, sandbox.MaxQueueBytes}, {unix.RLIMIT_NICE, 0}, {unix.RLIMIT_RTPRIO, 0},
		{unix.RLIMIT_SIGPENDING, sandbox.MaxPendingSignals},
		// The user is this jail's alone, or is counted in this jail's user namespace.
		{unix.RLIMIT_NPROC, uint64(c.limits.PIDs + supervisorThreads)},
	}
	if c.cgroup == nil {
		// Without a cgroup this is the closest: it limits each process by the memory it may write to, not by what it uses.
		limits = append(limits, [2]uint64{unix.RLIMIT_DATA, uint64(c.limits.MemoryBytes)})
	}
	for _, l := range limits {
		p.setLimit(int(l[0]), l[1], l[1])
	}
	// The Go runtime of the supervisor raises its own soft limit to the hard one, and starts programs with what it was.
	p.setLimit(unix.RLIMIT_NOFILE, uint64(c.limits.OpenFiles), uint64(c.limits.HardOpenFiles()))
}

func (p *program) setLimit(resource int, soft, hard uint64) {
	hard = min(hard, hardLimit(resource))
	p.call("set rlimit "+strconv.Itoa(resource), unix.SYS_PRLIMIT64, 0, resource, words(min(soft, hard), hard), 0)
}

// hardLimit is the worker's own hard limit, which a jail's may not exceed: only CAP_SYS_RESOURCE permits to raise one, and neither an
// ordinary user nor root in most containers has it.
func hardLimit(resource int) uint64 {
	var own unix.Rlimit
	if unix.Getrlimit(resource, &own) != nil {
		return 0 // unknown to this kernel: the call that sets it reports that
	}
	return own.Max
}

// passDescriptors moves descriptors to the numbers that the supervisor expects. One of them may be the report's: a call after this that
// fails is not named.
func (p *program) passDescriptors(c *jailConfig) {
	const cloexec = 0
	p.call("pass the listener", unix.SYS_DUP3, listenerFD, supervisor.ListenFD, cloexec)
	p.call("pass the connection", unix.SYS_DUP3, connFD, supervisor.ConnFD, cloexec)
	p.call("pass oom_score_adj", unix.SYS_DUP3, oomScoreFD, supervisor.OOMScoreFD, cloexec)
	if c.cgroup != nil {
		p.call("pass the count of OOM kills", unix.SYS_DUP3, c.oomCountFD(), supervisor.OOMCountFD, cloexec)
	}
}

// dropRights drops capabilities, groups and the user, and installs the filter.
func (p *program) dropRights(c *jailConfig) {
	p.call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	for capability := 0; capability <= c.lastCap; capability++ {
		p.call("drop capability "+strconv.Itoa(capability), unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
	}
	p.call("clear the ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	p.call("lock the securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0)
	if !c.userns {
		p.call("drop the supplementary groups", unix.SYS_SETGROUPS, 0, 0)
	}
	p.call("set the group id", unix.SYS_SETRESGID, c.uid, c.uid, c.uid)
	p.call("set the user id", unix.SYS_SETRESUID, c.uid, c.uid, c.uid)
	header := []byte{0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0} // _LINUX_CAPABILITY_VERSION_3, this process
	p.call("drop all capabilities", unix.SYS_CAPSET, header, make([]byte, 24))
	fprog := p.data(words(uint64(len(c.filter)/8), 0))
	p.patch(fprog, 8, p.data(c.filter))
	seccomp := p.call("install the filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0)
	seccomp.Args[2] = fprog
}

// secureBits are NOROOT, NO_SETUID_FIXUP off, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each locked: a process that became root would
// have no more rights than another user.
const secureBits = 1<<0 | 1<<1 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// supervisorProcs is the supervisor's GOMAXPROCS: its work is to move bytes.
const supervisorProcs = 4

func (p *program) execSupervisor(c *jailConfig) {
	args := pointers{"sluice-supervisor", "pid1", "conn", "score=" + c.supervisorOOMScore(), "scores=" + c.processOOMScore()}
	if c.cgroup != nil {
		args = append(args, "memory")
	}
	// With GOMAXPROCS set, the Go runtime does not read its cgroup from /proc, as it does now and then every second.
	env := pointers{"GOMAXPROCS=" + strconv.Itoa(min(runtime.NumCPU(), supervisorProcs))}
	p.call("exec the supervisor", unix.SYS_EXECVEAT, supervisorFD, "", args, env, unix.AT_EMPTY_PATH)
}
