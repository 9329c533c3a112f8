package supervisor

import (
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

const (
	// busyTries and busyWait: a program that was just written can be open for writing for a moment in a child another
	// thread has forked and that has not reached its own exec yet. Waiting a little is what everyone does about it.
	busyTries = 20
	busyWait  = 5 * time.Millisecond
)

// spawn starts a process, on the main thread, and answers Spawned or Failed.
func (s *supervisor) spawn(c *conn, m *wire.Spawn) {
	cause, detail := s.start(c, m)
	if detail != "" {
		reply := wire.Failed{Handle: m.Handle, Cause: cause, Detail: detail}
		c.write(reply.Append(nil))
	}
}

func (s *supervisor) start(c *conn, m *wire.Spawn) (wire.Cause, string) {
	if cause, detail := s.admit(m); detail != "" {
		return cause, detail
	}
	if s.reserved != nil {
		<-s.reserved
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
		return causeOf(err), m.Path + ": " + describe(err)
	}
	ends.closeChild()
	go p.run()
	return 0, ""
}

// admit refuses what may not start whatever it is.
func (s *supervisor) admit(m *wire.Spawn) (wire.Cause, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return wire.CauseEnding, "the sandbox is being terminated"
	}
	for handle, p := range s.procs {
		if handle == m.Handle || p.id == m.ID {
			return wire.CauseDuplicate, "process " + m.ID + " is there already"
		}
	}
	return 0, ""
}

// fork starts the program and makes p known, in one step as the reaper sees it. syscall.ForkExec itself waits for a child
// whose exec failed; the reaper cannot take that child first, since it only reaps with mu held.
func (s *supervisor) fork(p *process, m *wire.Spawn, program string, ends *pipes) error {
	argv := append([]string{m.Path}, m.Args...)
	kills := s.warden.kills()
	attr := &syscall.ProcAttr{Dir: m.Dir, Env: m.Env, Files: ends.files[:], Sys: childAttr()}
	for try := 0; ; try++ {
		s.mu.Lock()
		s.warden.lower()
		pid, err := syscall.ForkExec(program, argv, attr)
		s.warden.raise()
		if err != nil {
			s.mu.Unlock()
			if err == syscall.ETXTBSY && try < busyTries {
				time.Sleep(busyWait)
				continue
			}
			return err
		}
		p.pid, p.started, p.keep = pid, time.Now(), s.reattachWindow > 0
		p.oomBefore = kills
		for i := range p.out {
			p.out[i].open(p, wire.Stdout+byte(i), ends.ours[1+i], ends.fds[1+i])
		}
		if m.Stdin {
			p.stdin = newInput(p, ends.ours[0])
		}
		s.procs[p.handle], s.mains[pid] = p, p
		if m.Timeout > 0 {
			p.timeout = time.AfterFunc(time.Duration(m.Timeout), func() { s.timeOut(p, time.Duration(m.Grace)) })
		}
		s.mu.Unlock()
		s.watch(p)
		return nil
	}
}

// lookup finds the program as a shell does, in the environment the command itself will have.
func lookup(path, dir string, env []string) (string, wire.Cause, string) {
	if path == "" {
		return "", wire.CauseNotFound, "the command is empty"
	}
	if strings.IndexByte(path, '/') >= 0 {
		err := executable(absolute(dir, path))
		return path, lookupCause(err), detail(path, err)
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
		if err != syscall.ENOENT && err != syscall.ENOTDIR && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", wire.CauseNotExecutable, detail(path, denied)
	}
	return "", wire.CauseNotFound, path + ": command not found"
}

func lookupCause(err error) wire.Cause {
	if err == syscall.ENOENT || err == syscall.ENOTDIR {
		return wire.CauseNotFound
	}
	return wire.CauseNotExecutable
}

func detail(path string, err error) string {
	if err == nil {
		return ""
	}
	return path + ": " + err.Error()
}

// executable is nil for a file this user may execute.
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

// variable is the last value of a name, as a program would find it.
func variable(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if n, v, ok := strings.Cut(env[i], "="); ok && n == name {
			return v
		}
	}
	return ""
}

// causeOf sorts what fork and exec say. The program was found before, so that "no such file" means its interpreter.
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

func describe(err error) string {
	if err == syscall.ENOENT {
		return "its interpreter is not there: " + err.Error()
	}
	return os.NewSyscallError("exec", err).Error()
}
