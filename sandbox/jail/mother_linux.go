package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/supervisor/zygote"
)

// mother is the worker's end of its zygote.
type mother struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
	gone chan struct{} // closed when it has ended
	mu   sync.Mutex    // one request at a time
}

// newMother starts a zygote. It is in a session of its own, and has none of the worker's streams: it may outlive it.
func newMother(path string) (*mother, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "zygote"), os.NewFile(uintptr(pair[1]), "zygote")
	defer ours.Close()
	defer theirs.Close()
	m := &mother{}
	if m.cmd, err = hostproc.Start([]string{path, "zygote"}, theirs); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ours)
	if err == nil {
		var ok bool
		if m.conn, ok = conn.(*net.UnixConn); ok {
			m.gone = make(chan struct{})
			go func() {
				defer close(m.gone)
				_ = m.cmd.Wait() // how it ended says nothing: there is nothing it could lose
			}()
			return m, nil
		}
		err = errors.New("the zygote's socket is none")
	}
	return nil, errors.Join(err, m.cmd.Process.Kill(), m.cmd.Wait())
}

// close ends the zygote once its children have ended.
func (m *mother) close() error { return m.conn.Close() }

// wait blocks until it has.
func (m *mother) wait() { <-m.gone }

// child is a process the zygote has forked.
type child struct {
	pid   int
	pidfd *os.File
	page  uint64 // see zygote.Program.Next
}

// fork has a program run. The first descriptor is the report's.
func (m *mother) fork(p *program, files ...*os.File) (*child, error) {
	request := p.Append(nil)
	if len(request) > zygote.MaxProgram || len(files) > zygote.MaxFDs {
		return nil, fmt.Errorf("a program of %d bytes with %d descriptors is too large", len(request), len(files))
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, err := m.conn.WriteMsgUnix(request, unix.UnixRights(fds...), nil); err != nil {
		return nil, fmt.Errorf("ask the zygote: %w", err)
	}
	var answer [zygote.AnswerSize]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := m.conn.ReadMsgUnix(answer[:], oob)
	if err != nil || n != len(answer) {
		return nil, fmt.Errorf("the zygote does not answer: %w", errors.Join(err, errors.New("it has ended")))
	}
	pid := int32(binary.LittleEndian.Uint32(answer[:]))
	if pid < 0 {
		return nil, os.NewSyscallError("clone", syscall.Errno(-pid))
	}
	pidfd, err := receive(oob[:oobn])
	if err != nil {
		return nil, err
	}
	return &child{pid: int(pid), pidfd: pidfd, page: binary.LittleEndian.Uint64(answer[4:])}, nil
}

var errNoPidfd = errors.New("the zygote's answer has no pidfd")

func receive(oob []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errNoPidfd, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(errNoPidfd, err)
	}
	// Non-blocking, it can be waited for without a thread.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(err, unix.Close(fds[0]))
	}
	return os.NewFile(uintptr(fds[0]), "pidfd"), nil
}

// wait blocks until the child has ended, and everything with it where it was the first of a pid namespace.
func (c *child) wait() error { return hostproc.WaitPIDFD(c.pidfd) }

// kill ends it. It may have ended by itself, or be closed already: both are what is wanted.
func (c *child) kill() { hostproc.KillPIDFD(c.pidfd) }

// stepError is a call of a program that failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }

func (e *stepError) Unwrap() error { return e.err }

// report is what a child says of its program.
type report struct {
	done chan struct{} // closed when err is final
	err  error         // a *stepError; nil when the child has reached its exec, or was killed before
}

// reporting reads a child's report, whose calls are these. failed is called when it says that one failed; whoever waits for done
// waits for that too.
func reporting(r *os.File, steps []string, failed func()) *report {
	rep := &report{done: make(chan struct{})}
	go func() {
		defer close(rep.done)
		defer r.Close()
		var b [zygote.ReportSize]byte
		n, _ := r.Read(b[:]) // the end of the file is the good case; there is no other error on a pipe
		var f zygote.Failure
		if f.Decode(b[:n]) && int(f.Call) < len(steps) {
			rep.err = &stepError{steps[f.Call], syscall.Errno(f.Errno)}
			failed()
		}
	}()
	return rep
}
