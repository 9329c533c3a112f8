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
	if cause, detail := s.admit(m); detail != "" {
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
	program, cause, detail := lookup(m.Path, m.Dir, m.Env)
	if detail != "" {
		return cause, detail
	}
	ends, err := s.makePipes(m.Stdin)
	if err != nil {
		return causeOf(err), "pipe: " + err.Error()
	}
	p := &process{s: s, handle: m.Handle, id: m.ID, conn: c, gone: make(chan struct{})}
	if err := s.fork(p, m, program, ends); err != nil {
		ends.close()
		return causeOf(err), m.Path + ": " + execError(err)
	}
	ends.closeChild()
	go p.run()
	return 0, ""
}

// admit refuses a process in a terminating sandbox and a duplicate.
func (s *supervisor) admit(m *wire.Spawn) (wire.Cause, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminating {
		return wire.CauseEnding, "the sandbox is being terminated"
	}
	for handle, p := range s.procs {
		if handle == m.Handle || p.id == m.ID {
			return wire.CauseDuplicate, "process " + m.ID + " already exists"
		}
	}
	return 0, ""
}

// fork starts the program and registers p, in one step for the reaper. syscall.ForkExec itself waits for a child
// whose exec failed; the reaper cannot take that child first, because it only reaps with mu held.
func (s *supervisor) fork(p *process, m *wire.Spawn, program string, ends *pipes) error {
	argv := append([]string{m.Path}, m.Args...)
	oomKills := s.jail.oomKills()
	attr := &syscall.ProcAttr{Dir: m.Dir, Env: m.Env, Files: ends.files[:], Sys: childAttr()}
	for try := 0; ; try++ {
		s.mu.Lock()
		s.jail.useProcessScore()
		pid, err := syscall.ForkExec(program, argv, attr)
		s.jail.useOwnScore()
		if err != nil {
			s.mu.Unlock()
			if err == syscall.ETXTBSY && try < busyTries {
				time.Sleep(busyWait)
				continue
			}
			return err
		}
		p.pid, p.started, p.retain = pid, time.Now(), s.reattachWindow > 0
		p.oomBefore = oomKills
		for i := range p.out {
			p.out[i].open(p, wire.Stdout+byte(i), ends.ours[1+i], ends.fds[1+i])
		}
		if m.Stdin {
			p.stdin = newInput(p, ends.ours[0])
		}
		s.procs[p.handle], s.running[pid] = p, p
		if m.Timeout > 0 {
			p.timeout = time.AfterFunc(time.Duration(m.Timeout), func() { s.timeOut(p, time.Duration(m.Grace)) })
		}
		s.mu.Unlock()
		s.watch(p)
		return nil
	}
}

// pipes are the two ends of one process's pipes.
type pipes struct {
	files [3]uintptr  // the child's descriptors 0, 1, 2
	child []int       // to be closed here after the fork
	ours  [3]*os.File // nil without a pipe
	fds   [3]int      // of ours
}

func (s *supervisor) makePipes(stdin bool) (*pipes, error) {
	p := &pipes{}
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
	switch err {
	case syscall.E2BIG:
		return wire.CauseTooLong
	case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EINTR:
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
