package supervisor

import (
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// busyTries and busyWait retry ETXTBSY. A program that was just written can still be open for writing in a child that another
// thread has forked and that has not reached its exec yet.
const (
	busyTries = 20
	busyWait  = 5 * time.Millisecond
)

// spawn starts a process, on the main thread. It answers Failed, or the process's goroutine answers Spawned.
func (s *supervisor) spawn(c *conn, m *wire.Spawn) {
	if cause, detail := s.startProcess(c, m); detail != "" {
		c.send(&wire.Failed{Handle: m.Handle, Cause: cause, Detail: detail})
	}
}

func (s *supervisor) startProcess(c *conn, m *wire.Spawn) (wire.Cause, string) {
	if cause, detail := s.trees.admit(m); detail != "" {
		return cause, detail
	}
	if s.threads != nil {
		<-s.threads
	}
	var st syscall.Stat_t
	if err := syscall.Stat(m.Dir, &st); err != nil {
		return wire.CauseDir, "working directory " + m.Dir + ": " + err.Error()
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return wire.CauseDir, "working directory " + m.Dir + ": not a directory"
	}
	program, cause, detail := findProgram(m)
	if detail != "" {
		return cause, detail
	}
	ends, err := s.makeEnds(m)
	if err != nil {
		return causeOf(err), err.Error()
	}
	if m.Stdin && m.Path == filesName {
		growPipe(ends.fds[0]) // it reads much, and at once
	}
	p := &process{
		trees: s.trees, handle: m.Handle, id: m.ID, conn: c, gone: make(chan struct{}), terminal: ends.terminal, retain: s.hosts.window() > 0,
	}
	if err := s.trees.fork(p, m, program, ends); err != nil {
		ends.close()
		return causeOf(err), m.Path + ": " + execError(err)
	}
	ends.closeChild()
	go p.run()
	return 0, ""
}

// filesName is the name of the program for files among processes.
const filesName = "sluice-files"

// findProgram finds the program of a message. For the program for files it changes the message to run this executable.
func findProgram(m *wire.Spawn) (string, wire.Cause, string) {
	if m.Path != wire.FilesPath {
		return lookup(m.Path, m.Dir, m.Env)
	}
	program, err := executablePath()
	if err != nil {
		return "", wire.CauseOther, "find this program: " + err.Error()
	}
	m.Path = filesName
	m.Args = append([]string{filesArg}, m.Args...)
	if len(os.Args) > 1 && os.Args[1] == supervisorArg {
		m.Args = append([]string{supervisorArg}, m.Args...)
	}
	return program, 0, ""
}

// pipes are the two ends of one process's pipes, or of its terminal.
type pipes struct {
	files    [3]uintptr  // the child's descriptors 0, 1, 2
	child    []int       // to be closed here after the fork
	ours     [3]*os.File // nil without a pipe
	fds      [3]int      // of ours
	terminal int         // the child's end of its terminal; none for pipes
}

func (s *supervisor) makeEnds(m *wire.Spawn) (*pipes, error) {
	if m.Rows == 0 {
		p, err := s.makePipes(m.Stdin)
		return p, os.NewSyscallError("pipe", err)
	}
	p, err := makeTerminal(m)
	return p, os.NewSyscallError("terminal", err)
}

func (s *supervisor) makePipes(stdin bool) (*pipes, error) {
	p := &pipes{terminal: none}
	p.files[0] = uintptr(s.null)
	for i := range p.ours {
		if i == 0 && !stdin {
			continue
		}
		r, w, err := pipe()
		if err != nil {
			p.close()
			return nil, err
		}
		theirs, mine := w, r
		if i == 0 {
			theirs, mine = r, w
		}
		p.child = append(p.child, theirs)
		p.files[i] = uintptr(theirs)
		// Only our end: the child must get a pipe that blocks.
		if err := syscall.SetNonblock(mine, true); err != nil {
			syscall.Close(mine)
			p.close()
			return nil, err
		}
		p.fds[i] = mine
		p.ours[i] = os.NewFile(uintptr(mine), "pipe")
	}
	return p, nil
}

func (p *pipes) closeChild() {
	for _, fd := range p.child {
		syscall.Close(fd)
	}
	p.child = nil
}

func (p *pipes) close() {
	p.closeChild()
	for _, f := range p.ours {
		if f != nil {
			_ = f.Close()
		}
	}
	if p.terminal != none {
		syscall.Close(p.terminal)
	}
}

// lookup finds the program as a shell does, in the command's own environment.
func lookup(path, dir string, env []string) (string, wire.Cause, string) {
	if path == "" {
		return "", wire.CauseNotFound, "the command is empty"
	}
	if strings.IndexByte(path, '/') >= 0 {
		err := executable(absolute(dir, path))
		if err == nil {
			return path, 0, ""
		}
		if notFound(err) {
			return path, wire.CauseNotFound, path + ": " + err.Error()
		}
		return path, wire.CauseNotExecutable, path + ": " + err.Error()
	}
	var denied error
	for list := variable(env, "PATH"); list != ""; {
		entry, rest, _ := strings.Cut(list, ":")
		list = rest
		if entry == "" {
			entry = "."
		}
		name := entry + "/" + path
		err := executable(absolute(dir, name))
		if err == nil {
			return name, 0, ""
		}
		if !notFound(err) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", wire.CauseNotExecutable, path + ": " + denied.Error()
	}
	return "", wire.CauseNotFound, path + ": command not found"
}

func notFound(err error) bool { return err == syscall.ENOENT || err == syscall.ENOTDIR }

// executable returns nil for a file that this user may execute.
func executable(path string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return syscall.EISDIR
	}
	return access(path)
}

func absolute(dir, path string) string {
	if path[0] == '/' {
		return path
	}
	return dir + "/" + path
}

// variable returns the last value of a name, as a program would.
func variable(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if n, v, ok := strings.Cut(env[i], "="); ok && n == name {
			return v
		}
	}
	return ""
}

// causeOf maps an error of fork or exec. The program exists, so "no such file" means its interpreter.
func causeOf(err error) wire.Cause {
	if call, ok := err.(*os.SyscallError); ok {
		err = call.Err
	}
	switch err {
	case syscall.E2BIG:
		return wire.CauseTooLong
	case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EINTR:
		return wire.CauseBusy
	case syscall.EACCES, syscall.ENOEXEC, syscall.EISDIR, syscall.ENOENT, syscall.ENOTDIR, syscall.EPERM, syscall.ELOOP,
		syscall.ETXTBSY, syscall.EINVAL, syscall.ENAMETOOLONG, errBadLibrary:
		return wire.CauseNotExecutable
	default:
		return wire.CauseOther
	}
}

func execError(err error) string {
	if err == syscall.ENOENT {
		return "its interpreter does not exist: " + err.Error()
	}
	return os.NewSyscallError("exec", err).Error()
}
