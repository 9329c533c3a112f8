package supervisor

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// ListenFD is the descriptor on which a supervisor finds its listening socket, made by whoever started it: the first
// connection can be made before the supervisor runs, and waits in the socket's queue until then.
const ListenFD = 3

// receiveArg, followed by the path of a socket, is how a supervisor is started that can inherit nothing, as in a container.
const receiveArg = "receive"

// pid1 is the argument of a supervisor that is the first process of a pid namespace, which the processes share with it.
const pid1 = "pid1"

// none is no descriptor.
const none = -1

const (
	// stopGrace is what processes get between SIGTERM and SIGKILL when the supervisor itself is told to stop by a signal,
	// which is how docker stops a container, with 10 s before it kills.
	stopGrace = 5 * time.Second
	// stubborn is how long a killed process may take to go away (it may hang in the kernel, on a dead file server) before
	// the supervisor reports without it.
	stubborn = 5 * time.Second
	// maxProcs bounds the threads that run Go code. More would bring nothing: the work is in the kernel and in the
	// processes; and every one has memory caches of its own.
	maxProcs = 4
)

// supervisor is the whole state. mu guards everything below it, and is held over fork and over reaping, so that neither
// sees the other half done.
type supervisor struct {
	listen int           // the listening socket; none where there is but one connection
	first  *conn         // that one connection
	null   int           // /dev/null, open for reading
	table  *table        // the system's view of processes
	forked chan struct{} // wakes the reaper, which waits here while there is no child
	over   chan struct{} // closed when a terminated sandbox is empty
	next   chan *conn    // connections after the first; nil while none is wanted
	warden warden
	// reserved is closed once the spare threads are there; nil where none are wanted. Nothing is started before.
	reserved <-chan struct{}

	mu             sync.Mutex
	conn           *conn               // the connection in charge
	reattachWindow time.Duration       // how long to stay without a connection
	procs          map[uint64]*process // by handle: running, or kept until released
	mains          map[int]*process    // by pid: not yet reaped
	sweeping       []*process          // reaped, their trees not yet gone
	owners         map[int]*process    // of orphans, as far as known
	again          *time.Timer         // the next look at what sweeping left
	ending         bool                // being terminated
	hard           bool                // the grace of the termination is over
	closed         bool                // over is closed
}

// Main runs a supervisor on [ListenFD] until its work is over, and gives its exit code: 0 after an orderly end, 125 when it
// could not start. It must be called from the main goroutine, and the program must end when it returns. args are those
// after the program's name: none; "receive" and the path of a socket at which the listening socket is handed out; or what a
// jail's start code says of the jail.
func Main(args []string) int {
	// Fork from one thread that lives as long as the program: the parent-death signal of a child is tied to the thread.
	runtime.LockOSThread()
	if runtime.GOMAXPROCS(0) > maxProcs {
		runtime.GOMAXPROCS(maxProcs)
	}
	listen, first := ListenFD, (*conn)(nil)
	if len(args) == 2 && args[0] == receiveArg {
		var fd int
		var err error
		if listen, fd, err = receive(args[1]); err != nil {
			os.Stderr.WriteString("sluice supervisor: " + err.Error() + "\n")
			return exitFailed
		}
		if fd != none {
			first = &conn{fd: fd}
		}
		args = nil
		if syscall.Getpid() == 1 {
			args = []string{pid1}
		}
	}
	s := &supervisor{
		listen: listen, first: first,
		forked: make(chan struct{}, 1), over: make(chan struct{}),
		procs: make(map[uint64]*process), mains: make(map[int]*process),
		owners: make(map[int]*process),
	}
	err := s.warden.arguments(args)
	if err == nil {
		err = s.prepare()
	}
	if s.warden.pid1 {
		s.reserved = reserve(spareThreads)
	}
	if err != nil {
		os.Stderr.WriteString("sluice supervisor: " + err.Error() + "\n")
		return exitFailed
	}
	if c := s.warden.first(); c != nil {
		s.first = c
	}
	s.run()
	return 0
}

const exitFailed = 125

// prepare makes the process's own state what every child is to inherit.
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
	// A crash in a sandbox must not fill the workspace or the host's core folder, nor start the host's program for crashes. The
	// kernel starts that with a limit of 0 too, and not with one of 1. Refusal leaves things as they were.
	if syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: 1, Max: 1}) != nil {
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	}
	// Being notified of these has a second use: what was ignored when the supervisor started would stay ignored in every
	// child otherwise.
	stop := make(chan os.Signal, 1)
	if err := s.warden.prepare(); err != nil {
		return err
	}
	if !s.warden.pid1 { // there, only the processes themselves could send it one
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if s.table, err = adopt(); err != nil {
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

// run serves one connection after the other until the supervisor's work is over.
func (s *supervisor) run() {
	for c := s.accept(0); c != nil; c = s.accept(s.window()) {
		s.serve(c)
		s.hangUp(c)
		if s.window() == 0 || s.isOver() {
			break
		}
	}
	s.end()
}

// accept waits for a connection of this user or of root, at most the given time where that is not 0; nil when none came.
func (s *supervisor) accept(wait time.Duration) *conn {
	if c := s.first; c != nil {
		s.first = nil
		return c
	}
	if s.next == nil {
		return accepted(s.listen)
	}
	late, stop := after(wait)
	defer stop()
	select {
	case c := <-s.next:
		return c
	case <-late:
		return nil
	case <-s.over:
		return nil
	}
}

// acceptMore lets a new connection take over from one whose host no longer answers but is not gone either.
func (s *supervisor) acceptMore() {
	for c := accepted(s.listen); c != nil; c = accepted(s.listen) {
		s.mu.Lock()
		lingers := s.reattachWindow > 0
		if lingers && s.conn != nil {
			s.conn.hangUp()
		}
		s.mu.Unlock()
		if !lingers {
			c.close()
			continue
		}
		s.next <- c
	}
}

// accepted is the next connection of this user or of root; nil when there can be none.
func accepted(listen int) *conn {
	for {
		fd, err := accept(listen)
		switch {
		case err == syscall.EINTR || err == syscall.ECONNABORTED:
		case err != nil:
			return nil
		case !trusted(fd):
			_ = syscall.Close(fd)
		default:
			growSocket(fd)
			return &conn{fd: fd}
		}
	}
}

// hangUp ends a connection that is no longer read.
func (s *supervisor) hangUp(c *conn) {
	s.mu.Lock()
	if s.conn == c {
		s.conn = nil
	}
	s.mu.Unlock()
	c.close()
}

func (s *supervisor) window() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reattachWindow
}

func (s *supervisor) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// end kills whatever is left, without grace, and takes the socket's name away.
func (s *supervisor) end() {
	s.terminate(0)
	late, stop := after(stubborn)
	defer stop()
	select {
	case <-s.over:
	case <-late:
	}
	if name, err := syscall.Getsockname(s.listen); err == nil {
		if unix, ok := name.(*syscall.SockaddrUnix); ok && len(unix.Name) > 0 && unix.Name[0] == '/' {
			_ = syscall.Unlink(unix.Name)
		}
	}
}

// hello answers the first frame of a connection.
func (s *supervisor) hello(c *conn, m *wire.Hello) {
	s.mu.Lock()
	s.conn = c
	s.reattachWindow = time.Duration(m.ReattachWindow)
	s.mu.Unlock()
	if m.ReattachWindow > 0 && s.next == nil {
		s.next = make(chan *conn)
		go s.acceptMore()
	}
	reply := wire.Hello{Version: wire.Version, PID: uint32(syscall.Getpid()), ReattachWindow: m.ReattachWindow}
	c.write(reply.Append(nil))
}

// after closes a channel later. time.After would do, but a channel of times brings the printing of dates into the program.
func after(d time.Duration) (late <-chan struct{}, stop func() bool) {
	c := make(chan struct{})
	return c, time.AfterFunc(d, func() { close(c) }).Stop
}
