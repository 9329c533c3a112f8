package supervisor

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// The descriptors that a jail's start code leaves open for its supervisor. It opens them outside, as the jail's owner: inside, the
// supervisor has neither the right nor the path.
const (
	// OOMScoreFD is the supervisor's own oom_score_adj, open for reading and writing.
	OOMScoreFD = ListenFD + 1
	// OOMCountFD is the file in which the jail's memory cgroup counts its kills: v1's memory.oom_control or v2's memory.events.
	OOMCountFD = ListenFD + 2
	// ConnFD is the first connection. Only outside can it get large buffers.
	ConnFD = ListenFD + 3
)

// The optional arguments of a supervisor in a jail, besides pid1.
const (
	ownScoreArg     = "score="  // OOMScoreFD is open; the supervisor's own oom_score_adj
	processScoreArg = "scores=" // the oom_score_adj of the processes
	oomCountArg     = "memory"  // OOMCountFD is open
	connArg         = "conn"    // ConnFD is open
)

var errArguments = errors.New("unknown arguments: only sluice starts a supervisor")

// jailSupport is a supervisor's part in its jail.
type jailSupport struct {
	pid1         bool
	scoreFD      int    // the supervisor's own oom_score_adj, with ownScore
	ownScore     []byte // nil where the scores are all the same
	processScore []byte
	countsOOM    bool
	hasConn      bool
}

func (j *jailSupport) parse(args []string) error {
	for _, a := range args {
		switch {
		case a == pid1Arg:
			j.pid1 = true
		case a == oomCountArg:
			j.countsOOM = true
		case a == connArg:
			j.hasConn = true
		case strings.HasPrefix(a, ownScoreArg):
			j.scoreFD, j.ownScore = OOMScoreFD, []byte(a[len(ownScoreArg):])
		case strings.HasPrefix(a, processScoreArg):
			j.processScore = []byte(a[len(processScoreArg):])
		default:
			return errArguments
		}
	}
	return nil
}

// protect shields the supervisor from processes of the same user: from access to its memory and descriptors through /proc, and
// from signals. The kernel keeps SIGKILL and SIGSTOP from the first process of a pid namespace. It also drops a signal whose default action
// would end the process, but not while the first thread blocks it, as it does in a fork and in a handler: another thread takes it then,
// and the process ends. So these signals have a handler, which does nothing, and which no exec keeps. A Go program has handlers
// for all signals, and some would end it. Only that of SIGURG stays, by which the runtime interrupts itself.
func (j *jailSupport) protect() error {
	if !j.pid1 {
		return nil
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); e != 0 {
		return os.NewSyscallError("prctl dumpable", e)
	}
	for sig := syscall.Signal(1); sig <= lastSignal; sig++ {
		switch sig {
		case syscall.SIGURG:
		case syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGWINCH:
			defaultAction(sig) // it ends nothing
		case syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSYS:
			defaultAction(sig) // after a fault, a handler that does nothing would lead to the same fault; the kernel drops those of other processes
		default:
			noAction(sig)
		}
	}
	return nil
}

// firstConn is the connection that the supervisor was started with; nil for none.
func (j *jailSupport) firstConn() *conn {
	if !j.hasConn {
		return nil
	}
	syscall.CloseOnExec(ConnFD)
	return &conn{fd: ConnFD}
}

// ProcessScore returns the oom_score_adj of a sandbox's processes, given that of its starter, both -1000 to 1000, as in proc(5). A difference of
// 1000 counts as much as the whole memory limit, so the kernel selects every process before the supervisor, whose unread output may take most of
// the limit. With a starter above 0 the difference is smaller.
func ProcessScore(own int) int { return min(own+1000, 1000) }

// raiseProcessScore has the OOM killer select the processes before the supervisor, where no start code did that: a supervisor with more memory than
// each of many small processes would end for them, and its sandbox with it. It must come before protect, after which this file is another
// user's. Where the file cannot be used, the scores stay the same.
func (j *jailSupport) raiseProcessScore() {
	fd, err := syscall.Open("/proc/self/oom_score_adj", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	var buf [16]byte
	n, err := syscall.Read(fd, buf[:])
	own := bytes.TrimSpace(buf[:max(n, 0)])
	score, notNumber := strconv.Atoi(string(own))
	if err != nil || notNumber != nil {
		_ = syscall.Close(fd)
		return
	}
	j.scoreFD, j.ownScore, j.processScore = fd, bytes.Clone(own), strconv.AppendInt(nil, int64(ProcessScore(score)), 10)
}

// useProcessScore lets the kernel kill the next child when memory is short; useOwnScore protects the supervisor again. They
// surround the fork, because a child that was adjusted after it could have forked meanwhile.
func (j *jailSupport) useProcessScore() { j.setScore(j.processScore) }

func (j *jailSupport) useOwnScore() { j.setScore(j.ownScore) }

func (j *jailSupport) setScore(adjustment []byte) {
	if j.ownScore != nil && j.processScore != nil {
		_, _ = syscall.Pwrite(j.scoreFD, adjustment, 0)
	}
}

// oomKills is how many processes the kernel has killed for the jail's memory limit.
func (j *jailSupport) oomKills() int {
	if !j.countsOOM {
		return 0
	}
	var buf [512]byte
	n, err := syscall.Pread(OOMCountFD, buf[:], 0)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(buf[:n]) {
		if count, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			kills, _ := strconv.Atoi(string(bytes.TrimSpace(count)))
			return kills
		}
	}
	return 0
}
