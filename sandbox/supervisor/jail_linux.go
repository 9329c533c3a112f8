package supervisor

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// What a jail's start code leaves open for its supervisor. Both were opened as the jail's owner, outside; inside there is neither
// the right nor the path.
const (
	// ScoreFD is the supervisor's own oom_score_adj, open for reading and writing.
	ScoreFD = ListenFD + 1
	// MemoryFD is the file in which the jail's memory cgroup counts its kills: v1's memory.oom_control or v2's memory.events.
	MemoryFD = ListenFD + 2
	// ConnFD is the first connection, made outside too: there it could be given the large buffers that inside nobody has a
	// right to.
	ConnFD = ListenFD + 3
)

// The arguments of a supervisor in a jail besides pid1, each of which may be missing.
const (
	argScore  = "score="  // ScoreFD is open; the supervisor's own score, the processes have what that of the jail's owner was
	argScores = "scores=" // the processes' score
	argMemory = "memory"  // MemoryFD is open
	argConn   = "conn"    // ConnFD is open
)

var errArguments = errors.New("unknown arguments; it is started by sluice itself")

// warden is what a supervisor does for its jail.
type warden struct {
	pid1   bool
	own    []byte // nil where there is no ScoreFD
	others []byte
	counts bool
	conn   bool
}

func (w *warden) arguments(args []string) error {
	for _, a := range args {
		switch {
		case a == pid1:
			w.pid1 = true
		case a == argMemory:
			w.counts = true
		case a == argConn:
			w.conn = true
		case strings.HasPrefix(a, argScore):
			w.own = []byte(a[len(argScore):])
		case strings.HasPrefix(a, argScores):
			w.others = []byte(a[len(argScores):])
		default:
			return errArguments
		}
	}
	return nil
}

// prepare closes what a process of the same user could reach the supervisor by: its memory and its descriptors, through /proc,
// and its signal handlers. The kernel keeps SIGKILL and SIGSTOP from the first process of a pid namespace, and drops whatever it
// has no handler for; but a Go program has handlers for all, and would end by some. Only that of SIGURG stays, by which the
// runtime interrupts itself.
func (w *warden) prepare() error {
	if !w.pid1 {
		return nil
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); e != 0 {
		return os.NewSyscallError("prctl dumpable", e)
	}
	for sig := syscall.Signal(1); sig <= lastSignal; sig++ {
		if sig != syscall.SIGURG {
			defaultAction(sig)
		}
	}
	return nil
}

// first is the connection that the supervisor was started with; nil where there is none.
func (w *warden) first() *conn {
	if !w.conn {
		return nil
	}
	syscall.CloseOnExec(ConnFD)
	return &conn{fd: ConnFD}
}

// lower makes the next child one that the kernel may kill when memory is short; raise takes the supervisor back out of that.
// Done around the fork, since a child that was adjusted after it could have forked meanwhile.
func (w *warden) lower() { w.score(w.others) }

func (w *warden) raise() { w.score(w.own) }

func (w *warden) score(adjustment []byte) {
	if w.own != nil && w.others != nil {
		_, _ = syscall.Pwrite(ScoreFD, adjustment, 0)
	}
}

// kills is how many processes the kernel has killed for the jail's memory limit.
func (w *warden) kills() int {
	if !w.counts {
		return 0
	}
	var buf [512]byte
	n, err := syscall.Pread(MemoryFD, buf[:], 0)
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
