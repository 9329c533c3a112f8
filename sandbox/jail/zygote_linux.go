package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/supervisor/zygote"
)

// zygoteClient is the worker's end of its zygote. It starts another zygote when that one was killed; the jails that it forked stay.
type zygoteClient struct {
	path string

	mu     sync.Mutex // one request at a time
	zygote *zygoteProcess
	closed bool
}

// zygoteProcess is a zygote that was started.
type zygoteProcess struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
	gone chan struct{} // closed when it has ended, and conn with it
}

func startZygote(path string) (*zygoteClient, error) {
	first, err := startZygoteProcess(path)
	if err != nil {
		return nil, err
	}
	return &zygoteClient{path: path, zygote: first}, nil
}

// startZygoteProcess starts a zygote in its own session and without the worker's streams: it may outlive the worker.
func startZygoteProcess(path string) (*zygoteProcess, error) {
	ours, theirs, err := seqpacketPair("zygote")
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	cmd, err := hostproc.Start([]string{path, "zygote"}, theirs)
	if err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ours)
	if err == nil {
		if unixConn, ok := conn.(*net.UnixConn); ok {
			z := &zygoteProcess{cmd: cmd, conn: unixConn, gone: make(chan struct{})}
			go func() {
				defer close(z.gone)
				_ = cmd.Wait() // its exit status carries no information
				// A pending jail has the zygote's end of the socket until its exec: an answer would be waited for without end.
				_ = z.conn.Close()
			}()
			return z, nil
		}
		err = errors.New("the zygote's socket is no unix socket")
	}
	return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
}

// close lets the zygote end once its children have ended.
func (z *zygoteClient) close() error {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.closed = true
	if err := z.zygote.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // it was killed
}

// wait blocks until the zygote has ended. Call it after close.
func (z *zygoteClient) wait() { <-z.zygote.gone }

// running returns the zygote, or a new one when it was killed. mu is held.
func (z *zygoteClient) running() (*zygoteProcess, error) {
	select {
	case <-z.zygote.gone:
	default:
		return z.zygote, nil
	}
	if z.closed {
		return nil, errors.New("the zygote has ended")
	}
	next, err := startZygoteProcess(z.path)
	if err != nil {
		return nil, fmt.Errorf("start another zygote: %w", err)
	}
	z.zygote = next
	return next, nil
}

// fork has the zygote fork a process that runs a program. The first file is the pipe for the process's report. A zygote that is killed
// during the request may have forked: the request fails, and the process ends with its files.
func (z *zygoteClient) fork(p *program, files ...*os.File) (*process, error) {
	request := p.Append(nil)
	if len(request) > zygote.MaxProgram || len(files) > zygote.MaxFDs {
		return nil, fmt.Errorf("a program of %d bytes with %d descriptors is too large", len(request), len(files))
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	running, err := z.running()
	if err != nil {
		return nil, err
	}
	if _, _, err := running.conn.WriteMsgUnix(request, unix.UnixRights(descriptors(files)...), nil); err != nil {
		return nil, fmt.Errorf("send a program to the zygote: %w", err)
	}
	var answer [zygote.AnswerSize]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := running.conn.ReadMsgUnix(answer[:], oob)
	if err != nil || n != len(answer) {
		return nil, fmt.Errorf("read the zygote's answer: %w", errors.Join(err, errors.New("the zygote has ended")))
	}
	pid := int32(binary.LittleEndian.Uint32(answer[:]))
	if pid < 0 {
		return nil, os.NewSyscallError("clone", syscall.Errno(-pid))
	}
	if flags&unix.MSG_CTRUNC != 0 { // the system had no descriptor for it, and closed it; the process ends with its files
		return nil, fmt.Errorf("receive a pidfd: %w", unix.EMFILE)
	}
	pidfd, err := receivePIDFD(oob[:oobn])
	if err != nil {
		return nil, err
	}
	return &process{pid: int(pid), pidfd: pidfd, page: binary.LittleEndian.Uint64(answer[4:])}, nil
}

var errNoPIDFD = errors.New("the zygote's answer has no pidfd")

func receivePIDFD(oob []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errNoPIDFD, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(errNoPIDFD, err)
	}
	// A wait for a non-blocking pidfd takes no thread.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(err, unix.Close(fds[0]))
	}
	return os.NewFile(uintptr(fds[0]), "pidfd"), nil
}

// seqpacketPair returns the two ends of a socket.
func seqpacketPair(name string) (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(pair[0]), name), os.NewFile(uintptr(pair[1]), name), nil
}

func descriptors(files []*os.File) []int {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return fds
}

// process is a process that a zygote forked: as a rule pid 1 of a jail.
type process struct {
	pid   int // on the host
	pidfd *os.File
	page  uint64 // see zygote.Program.Continuation
}

// wait blocks until the process has ended, and with it everything in a pid namespace of which it is pid 1.
func (p *process) wait() error { return hostproc.WaitPIDFD(p.pidfd) }

// gone returns a channel that is closed when the process has ended.
func (p *process) gone() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = p.wait() // fails only for a closed descriptor, which is closed later
	}()
	return gone
}

// kill ends the process. It has no effect when the process has ended or its descriptor is closed.
func (p *process) kill() { hostproc.KillPIDFD(p.pidfd) }

func (p *process) ended() (ended bool) {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		ended = err != nil || n > 0
	})
	return ended || err != nil
}

// callError is a call of a program that failed.
type callError struct {
	call string
	err  error
}

func (e *callError) Error() string { return e.call + ": " + e.err.Error() }

func (e *callError) Unwrap() error { return e.err }

// setupReport is what a process reports of its programs.
type setupReport struct {
	done chan struct{} // closed when err is final
	err  error         // a *callError; nil when the process has reached its exec, or was killed before
}

// readReport reads the report of a process that runs these calls. It calls onFailure when one of them failed, before done is closed.
func readReport(r *os.File, calls []string, onFailure func()) *setupReport {
	report := &setupReport{done: make(chan struct{})}
	go func() {
		defer close(report.done)
		defer r.Close()
		var b [zygote.ReportSize]byte
		n, _ := r.Read(b[:]) // end of file: the process has reached its exec; a pipe has no other error
		var f zygote.Failure
		if f.Decode(b[:n]) && int(f.Call) < len(calls) {
			report.err = &callError{calls[f.Call], syscall.Errno(f.Errno)}
			onFailure()
		}
	}()
	return report
}

// pendingJail is a process that has its namespaces and its root, and waits for its final program.
type pendingJail struct {
	*process
	uid    int
	calls  []string // the names of the setup program's calls
	report *os.File // the read end of its report
	final  *os.File // the socket for the final program; the process ends when it is closed
}

// startPending has the zygote fork a process that runs the setup program.
func (z *zygoteClient) startPending(c *jailConfig) (_ *pendingJail, err error) {
	final, theirs, err := seqpacketPair("final program")
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, final.Close())
		}
	}()
	report, reporter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reporter.Close()
	setup := c.setupProgram()
	proc, err := z.fork(setup, reporter, theirs)
	if err != nil {
		return nil, errors.Join(err, report.Close())
	}
	return &pendingJail{process: proc, uid: c.uid, calls: setup.names, report: report, final: final}, nil
}

// finish sends the final program. The pendingJail cannot be used again. Errors: a *callError when the setup program failed.
func (j *pendingJail) finish(final *program, onFailure func(), files ...*os.File) (*setupReport, error) {
	b, ok := final.Continuation(j.page)
	if !ok {
		return nil, fmt.Errorf("a program of %d calls is too large", len(final.Calls))
	}
	if err := unix.Sendmsg(int(j.final.Fd()), b, unix.UnixRights(descriptors(files)...), nil, unix.MSG_NOSIGNAL); err != nil {
		return nil, j.failure(os.NewSyscallError("sendmsg", err))
	}
	return readReport(j.report, slices.Concat(j.calls, final.names), onFailure), j.final.Close()
}

// failure ends the process and returns what it reported, or else err.
func (j *pendingJail) failure(err error) error {
	j.kill()
	report := readReport(j.report, j.calls, func() {})
	<-report.done
	if report.err != nil {
		return report.err
	}
	return err
}

// discard ends the process.
func (j *pendingJail) discard() {
	j.kill()
	// The process has ended, and its report is not needed: these errors have no consequence.
	_ = j.wait()
	_ = errors.Join(j.final.Close(), j.report.Close(), j.pidfd.Close())
}
