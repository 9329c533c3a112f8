package jail

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/sandbox/supervisor/zygote"
)

// jailed is everything that is known of a jail before it is started.
type jailed struct {
	base        string // a folder of the host to build the root on
	supervisor  string // the program
	workspace   string
	entries     []entry
	maskedFiles []string
	maskedDirs  []string
	limits      sandbox.Limits
	hostNet     bool // it shares the host's network
	filter      []byte
	lastCap     int
	group       *group // nil without cgroups
	userns      bool   // an ordinary user starts it
	uid         int    // of the processes, as they see it
	hostUID     int    // the worker's, where userns
	mapped      bool   // the owners of the workspace's files are, to the jail's user
	score       string // the worker's own oom_score_adj
	unkillable  bool   // the supervisor may be put out of the kernel's reach when memory is short
}

// The descriptors that are sent along, by their index: first those of before, of which the report's is 0; then those of become.
const (
	moreFD passed = 1

	listenerFD passed = 0
	connFD     passed = 1
	joinFD     passed = 2 // the first file to enter a cgroup by
)

// countsFD is where the cgroup's kills are counted; it comes after the files to enter by.
func (j *jailed) countsFD() passed { return joinFD + passed(len(j.group.join)) }

// workspaceFD is the workspace's mount.
func (j *jailed) workspaceFD() passed {
	if j.group == nil {
		return joinFD
	}
	return j.countsFD() + 1
}

// namespaces are what a jail does not share. The cgroup namespace is left later, from inside its cgroup.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// before is what a jail is whoever's it will be, in the order in which it has to happen.
func (j *jailed) before() *program {
	p := &program{}
	p.Flags = namespaces
	if j.hostNet {
		p.Flags &^= unix.CLONE_NEWNET
	}
	p.call("leave the session", unix.SYS_SETSID)
	if j.userns {
		p.Flags |= unix.CLONE_NEWUSER
		p.identity(j)
	}
	p.score(j)
	// While the host's files are in sight, through a mount of its own that cannot be written to: the program must not be
	// reachable by /proc/PID/exe in any other way.
	p.takeSupervisor(j)
	if !j.hostNet {
		p.network()
	}
	p.root(j)
	p.call("name the host", unix.SYS_SETHOSTNAME, "sandbox", len("sandbox"))
	p.call("wait", zygote.AwaitCalls, moreFD)
	return p
}

// become is what makes it one jail in particular. It enters its cgroups itself: to have another process moved takes a lock that waits
// for every processor, for milliseconds.
func (j *jailed) become() *program {
	p := &program{}
	if j.group != nil {
		for i, path := range j.group.join {
			p.call("enter by "+path, unix.SYS_WRITE, joinFD+passed(i), "0", 1)
		}
	}
	p.call("leave the cgroup namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	p.own(j)
	p.rlimits(j)
	p.descriptors(j)
	p.drop(j)
	p.exec(j)
	return p
}

// identity makes the worker's user sandboxuser in the user namespace.
func (p *program) identity(j *jailed) {
	for _, f := range [][2]string{
		{"uid_map", strconv.Itoa(j.uid) + " " + strconv.Itoa(j.hostUID) + " 1"},
		{"setgroups", "deny"},
		{"gid_map", strconv.Itoa(j.uid) + " " + strconv.Itoa(os.Getegid()) + " 1"},
	} {
		p.file("/proc/self/"+f[0], f[1], 0, 0)
	}
}

// never is the score of what the kernel never kills for memory. The right to it is CAP_SYS_RESOURCE, which root in a container may
// lack; the supervisor is then only the last that is killed.
const never = "-1000"

func (p *program) score(j *jailed) {
	const path = "/proc/self/oom_score_adj"
	save(p.call("open "+path, unix.SYS_OPENAT, atFDCWD, path, unix.O_RDWR|unix.O_CLOEXEC), score)
	p.call("write "+path, unix.SYS_WRITE, score, j.ownScore(), len(j.ownScore()))
}

func (j *jailed) ownScore() string {
	if j.unkillable {
		return never
	}
	return j.score
}

// processScore puts the processes before everything else the worker's user runs, without making them the first on the machine.
func (j *jailed) processScore() string {
	own, _ := strconv.Atoi(j.score)
	return strconv.Itoa(min(own+500, 1000))
}

func (p *program) takeSupervisor(j *jailed) {
	save(p.call("take the supervisor", unix.SYS_OPEN_TREE, atFDCWD, j.supervisor, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC), mounting)
	p.attributes("the supervisor", roBind, unix.AT_EMPTY_PATH)
	save(p.call("keep the supervisor", unix.SYS_FCNTL, mounting, unix.F_DUPFD_CLOEXEC, 20), supervisorFD)
	p.call("close", unix.SYS_CLOSE, mounting)
}

// network brings the loopback up: programs test themselves over it, and it leads nowhere.
func (p *program) network() {
	ifreq := make([]byte, 40)
	copy(ifreq, "lo")
	ifreq[16] = unix.IFF_UP | unix.IFF_RUNNING
	save(p.call("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0), scratch)
	p.call("bring the loopback up", unix.SYS_IOCTL, scratch, unix.SIOCSIFFLAGS, ifreq)
	p.call("close", unix.SYS_CLOSE, scratch)
}

const (
	maxFiles   = 4096
	maxPending = 1024
	maxLocked  = 8 << 20
)

func (p *program) rlimits(j *jailed) {
	limits := [][2]uint64{
		// With 0 the kernel would still start the host's program for crashes, if there is one; with 1 it does not.
		{unix.RLIMIT_CORE, 1}, {unix.RLIMIT_NOFILE, maxFiles}, {unix.RLIMIT_FSIZE, uint64(j.limits.FileBytes)},
		{unix.RLIMIT_MEMLOCK, maxLocked}, {unix.RLIMIT_MSGQUEUE, 1 << 16}, {unix.RLIMIT_NICE, 0}, {unix.RLIMIT_RTPRIO, 0},
		{unix.RLIMIT_SIGPENDING, maxPending},
		// The user is this jail's alone, or counted in this jail's user namespace.
		{unix.RLIMIT_NPROC, uint64(j.limits.PIDs + supervisorThreads)},
	}
	if j.group == nil {
		// By process, and by what it may write to rather than what it has: the best there is without a cgroup.
		limits = append(limits, [2]uint64{unix.RLIMIT_DATA, uint64(j.limits.MemoryBytes)})
	}
	for _, l := range limits {
		p.call("limit "+strconv.Itoa(int(l[0])), unix.SYS_PRLIMIT64, 0, int(l[0]), words(l[1], l[1]), 0)
	}
}

// descriptors puts what the supervisor is to have where it looks for it.
func (p *program) descriptors(j *jailed) {
	const cloexec = 0
	p.call("pass the socket", unix.SYS_DUP3, listenerFD, supervisor.ListenFD, cloexec)
	p.call("pass the connection", unix.SYS_DUP3, connFD, supervisor.ConnFD, cloexec)
	p.call("pass the score", unix.SYS_DUP3, score, supervisor.OOMScoreFD, cloexec)
	if j.group != nil {
		p.call("pass the count of kills", unix.SYS_DUP3, j.countsFD(), supervisor.OOMCountFD, cloexec)
	}
}

// drop gives up every right there is.
func (p *program) drop(j *jailed) {
	p.call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	for capability := 0; capability <= j.lastCap; capability++ {
		p.call("drop capability "+strconv.Itoa(capability), unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
	}
	p.call("clear the ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	p.call("lock the securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0)
	if !j.userns {
		p.call("leave the groups", unix.SYS_SETGROUPS, 0, 0)
	}
	p.call("become "+userName+"'s group", unix.SYS_SETRESGID, j.uid, j.uid, j.uid)
	p.call("become "+userName, unix.SYS_SETRESUID, j.uid, j.uid, j.uid)
	header := []byte{0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0} // _LINUX_CAPABILITY_VERSION_3, this process
	p.call("drop all capabilities", unix.SYS_CAPSET, header, make([]byte, 24))
	fprog := p.data(words(uint64(len(j.filter)/8), 0))
	p.patch(fprog, 8, p.data(j.filter))
	c := p.call("install the filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0)
	c.Args[2] = fprog
}

// secureBits are NOROOT, NO_SETUID_FIXUP off, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each locked: root, were somebody to become it,
// would be a user like any other.
const secureBits = 1<<0 | 1<<1 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// supervisorProcs is how many threads run the supervisor's code at a time: what it does is move bytes.
const supervisorProcs = 4

func (p *program) exec(j *jailed) {
	args := pointers{"sluice-supervisor", "pid1", "conn", "score=" + j.ownScore(), "scores=" + j.processScore()}
	if j.group != nil {
		args = append(args, "memory")
	}
	// Told how many processors to use, the supervisor's runtime does not look for its cgroup in /proc, now and then every second.
	env := pointers{"GOMAXPROCS=" + strconv.Itoa(min(runtime.NumCPU(), supervisorProcs))}
	p.call("exec the supervisor", unix.SYS_EXECVEAT, supervisorFD, "", args, env, unix.AT_EMPTY_PATH)
}

// readNumber is a small number in a file of /proc.
func readNumber(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// capable says whether this process has a capability.
func capable(capability int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, os.NewSyscallError("capget", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}
