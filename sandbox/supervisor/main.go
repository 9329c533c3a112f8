package supervisor

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/files"
)

// ListenFD is the descriptor of a supervisor's listening socket. Its starter makes the socket, so the first connection can be made
// before the supervisor runs: it waits in the socket's queue.
const ListenFD = 3

const (
	// receiveArg, followed by a socket's path, starts a supervisor that can inherit no descriptor, as in a container.
	receiveArg = "receive"
	// filesArg starts the program for files in place of a supervisor; its arguments follow.
	filesArg = "files"
	// supervisorArg precedes the arguments where the product's binary is the supervisor.
	supervisorArg = "supervisor"
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

// supervisor does what its host asks for, one message at a time: it starts processes, and has their trees killed.
type supervisor struct {
	hosts *hosts
	trees *trees
	jail  jailSupport
	null  int // /dev/null, open for reading
	// threads is closed once the spare threads exist; nil where none are made. No process starts before.
	threads <-chan struct{}
}

// Main runs a supervisor on [ListenFD] until its work is done, and returns its exit code: 0 after an orderly end, 125 when it
// could not start. It must be called from the main goroutine, and the program must end when it returns. args are those
// after the program's name: none; "receive" and the path of a socket that passes the listening socket; or the arguments of a
// jail's start code.
func Main(args []string) int {
	if len(args) > 0 && args[0] == filesArg {
		return files.Main(args[1:])
	}
	// Fork from one thread that lives as long as the program: the parent-death signal of a child is tied to the thread.
	runtime.LockOSThread()
	if runtime.GOMAXPROCS(0) > maxProcs {
		runtime.GOMAXPROCS(maxProcs)
	}
	s := new(supervisor)
	s.trees = newTrees(&s.jail)
	s.hosts = &hosts{socket: ListenFD, ended: s.trees.ended}
	s.trees.onEnd = s.hosts.stopReading
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
		s.hosts.socket = listen
		if fd != none {
			s.hosts.first = &conn{fd: fd}
		}
		args = nil
		if syscall.Getpid() == 1 {
			args = []string{pid1Arg}
			s.jail.raiseProcessScore()
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
		s.hosts.first = c
	}
	return nil
}

// prepare sets the state of this process that every child inherits.
func (s *supervisor) prepare() error {
	if socket := s.hosts.socket; socket != none {
		syscall.CloseOnExec(socket)
		if err := syscall.SetNonblock(socket, false); err != nil {
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
	// The runtime makes its poller for the first timer, and crashes when it gets no descriptor then.
	time.AfterFunc(time.Hour, func() {}).Stop()
	// Notify also stops these signals from being ignored: a signal that the supervisor inherited as ignored would stay
	// ignored in every child.
	stop := make(chan os.Signal, 1)
	if !s.jail.pid1 { // only the processes themselves could signal a pid1
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if s.trees.table, err = becomeReaper(); err != nil {
		return err
	}
	if err := s.jail.protect(); err != nil { // after the reaper has reset the signals
		return err
	}
	go func() {
		for range stop {
			s.trees.terminate(stopGrace)
		}
	}()
	go s.trees.reap()
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
	for c := s.hosts.accept(0); c != nil; c = s.hosts.accept(s.hosts.window()) {
		s.serve(c)
		s.hosts.leave(c)
		if s.hosts.window() == 0 || s.trees.hasEnded() {
			break
		}
	}
	s.trees.terminate(0)
	late, stop := after(killWait)
	defer stop()
	select {
	case <-s.trees.ended:
	case <-late:
	}
	s.hosts.unlink()
}

// after closes a channel after d. time.After would link the formatting of dates into the program.
func after(d time.Duration) (late <-chan struct{}, stop func() bool) {
	c := make(chan struct{})
	return c, time.AfterFunc(d, func() { close(c) }).Stop
}
