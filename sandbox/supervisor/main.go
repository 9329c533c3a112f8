package supervisor

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ListenFD is the descriptor of a supervisor's listening socket. Its starter makes the socket, so the first connection can be made
// before the supervisor runs: it waits in the socket's queue.
const ListenFD = 3

const (
	// receiveArg, followed by a socket's path, starts a supervisor that can inherit no descriptor, as in a container.
	receiveArg = "receive"
	// pid1Arg starts a supervisor that is the first process of a pid namespace, which it shares with the processes.
	pid1Arg = "pid1"
)

const none = -1

// exitFailed is the exit code of a supervisor that could not start.
const exitFailed = 125

const (
	// stopGrace is the time between SIGTERM and SIGKILL for the processes when a signal stops the supervisor. Docker stops a
	// container that way, and kills it after 10 s.
	stopGrace = 5 * time.Second
	// killWait is how long a killed process may take to end (it may hang in the kernel, on a dead file server) before the
	// supervisor reports without it.
	killWait = 5 * time.Second
	// maxProcs bounds the threads that run Go code. More would not help: the kernel and the processes do the work, and each
	// thread has its own memory caches.
	maxProcs = 4
	// spareThreads is how many threads a supervisor makes before anything runs in its jail or container. The limit of processes
	// there counts the supervisor's threads too, and the Go runtime crashes when it cannot get a thread that it needs. Each
	// process keeps at most three threads busy, and no process can start once the limit is reached.
	spareThreads = 8
)

// supervisor is the whole state. mu guards the fields below it. It is held over fork and over reaping, so that neither
// sees the other half done.
type supervisor struct {
	listen int           // the listening socket; none where only one connection is possible
	first  *conn         // a connection made before the start; nil for none
	null   int           // /dev/null, open for reading
	table  *processTable // the system's view of processes
	forked chan struct{} // wakes the reaper, which waits here while there is no child
	ended  chan struct{} // closed when a terminated sandbox is empty
	next   chan *conn    // connections after the first; nil while none is accepted
	jail   jailSupport
	// threads is closed once the spare threads exist; nil where none are made. No process starts before.
	threads <-chan struct{}

	mu             sync.Mutex
	conn           *conn               // the current connection
	reattachWindow time.Duration       // how long to stay without a connection
	procs          map[uint64]*process // by handle: running, or retained until released
	running        map[int]*process    // by pid: not yet reaped
	sweeping       []*process          // reaped, their trees not yet gone
	owners         map[int]*process    // of orphans, as far as known
	nextSweep      *time.Timer         // nil while none is scheduled
	terminating    bool
	graceOver      bool // the grace of the termination has passed
	done           bool // ended is closed
}

// Main runs a supervisor on [ListenFD] until its work is done, and returns its exit code: 0 after an orderly end, 125 when it
// could not start. It must be called from the main goroutine, and the program must end when it returns. args are those
// after the program's name: none; "receive" and the path of a socket that passes the listening socket; or the arguments of a
// jail's start code.
func Main(args []string) int {
	// Fork from one thread that lives as long as the program: the parent-death signal of a child is tied to the thread.
	runtime.LockOSThread()
	if runtime.GOMAXPROCS(0) > maxProcs {
		runtime.GOMAXPROCS(maxProcs)
	}
	s := &supervisor{
		listen: ListenFD, forked: make(chan struct{}, 1), ended: make(chan struct{}),
		procs: make(map[uint64]*process), running: make(map[int]*process), owners: make(map[int]*process),
	}
	if err := s.start(args); err != nil {
		os.Stderr.WriteString("sluice supervisor: " + err.Error() + "\n")
		return exitFailed
	}
	s.run()
	return 0
}

func (s *supervisor) start(args []string) error {
	if len(args) == 2 && args[0] == receiveArg {
		listen, fd, err := receive(args[1])
		if err != nil {
			return err
		}
		s.listen = listen
		if fd != none {
			s.first = &conn{fd: fd}
		}
		args = nil
		if syscall.Getpid() == 1 {
			args = []string{pid1Arg}
		}
	}
	if err := s.jail.parse(args); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	if s.jail.pid1 {
		s.threads = makeThreads(spareThreads)
	}
	if c := s.jail.firstConn(); c != nil {
		s.first = c
	}
	return nil
}

// prepare sets the state of this process that every child inherits.
func (s *supervisor) prepare() error {
	if s.listen != none {
		syscall.CloseOnExec(s.listen)
		if err := syscall.SetNonblock(s.listen, false); err != nil {
			return os.NewSyscallError("listening socket", err)
		}
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open /dev/null", err)
	}
	s.null = null
	syscall.Umask(0o022)
	// A crash in a sandbox must neither fill the workspace or the host's core folder nor start the host's crash handler. The
	// kernel starts that handler under a limit of 0 too, but not under a limit of 1. A refusal changes nothing.
	if syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: 1, Max: 1}) != nil {
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	}
	// Notify also stops these signals from being ignored: a signal that the supervisor inherited as ignored would stay
	// ignored in every child.
	stop := make(chan os.Signal, 1)
	if err := s.jail.protect(); err != nil {
		return err
	}
	if !s.jail.pid1 { // only the processes themselves could signal a pid1
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if s.table, err = becomeReaper(); err != nil {
		return err
	}
	go func() {
		for range stop {
			s.terminate(stopGrace)
		}
	}()
	go s.reap()
	return nil
}

// makeThreads makes n threads, which the runtime then keeps idle until it needs them. It closes done once they exist; the
// supervisor can answer its host meanwhile.
func makeThreads(n int) (done <-chan struct{}) {
	made := make(chan struct{})
	go func() {
		defer close(made)
		var up sync.WaitGroup
		up.Add(n)
		release := make(chan struct{})
		for range n {
			go func() {
				// A locked goroutine keeps its thread while it waits. Unlocked before its end, it leaves the thread to the runtime.
				runtime.LockOSThread()
				up.Done()
				<-release
				runtime.UnlockOSThread()
			}()
		}
		up.Wait()
		close(release)
	}()
	return made
}

// run serves one connection after the other until the supervisor's work is done.
func (s *supervisor) run() {
	for c := s.accept(0); c != nil; c = s.accept(s.window()) {
		s.serve(c)
		s.disconnect(c)
		if s.window() == 0 || s.hasEnded() {
			break
		}
	}
	s.end()
}

func (s *supervisor) window() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reattachWindow
}

func (s *supervisor) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// end kills every remaining process, without grace, and removes the socket's name.
func (s *supervisor) end() {
	s.terminate(0)
	late, stop := after(killWait)
	defer stop()
	select {
	case <-s.ended:
	case <-late:
	}
	if name, err := syscall.Getsockname(s.listen); err == nil {
		if unix, ok := name.(*syscall.SockaddrUnix); ok && len(unix.Name) > 0 && unix.Name[0] == '/' {
			_ = syscall.Unlink(unix.Name)
		}
	}
}

// after closes a channel after d. time.After would link the formatting of dates into the program.
func after(d time.Duration) (late <-chan struct{}, stop func() bool) {
	c := make(chan struct{})
	return c, time.AfterFunc(d, func() { close(c) }).Stop
}
