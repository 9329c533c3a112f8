package jail

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// spare is a jail that is nobody's yet: it has its namespaces and its root, and waits to be told the rest.
type spare struct {
	*child
	uid    int
	steps  []string // of what it has been told so far
	report *os.File // the read end of its report
	more   *os.File // our end of the socket on which it waits; closed, it ends
}

// makeSpare has the zygote fork one for a user.
func (m *mother) makeSpare(j *jailed) (_ *spare, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	s := &spare{uid: j.uid, more: os.NewFile(uintptr(pair[0]), "more")}
	theirs := os.NewFile(uintptr(pair[1]), "more")
	defer theirs.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.more.Close())
		}
	}()
	report, reporter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reporter.Close()
	s.report = report
	p := j.before()
	s.steps = p.steps
	if s.child, err = m.fork(p, reporter, theirs); err != nil {
		return nil, errors.Join(err, report.Close())
	}
	return s, nil
}

// become tells it the rest, and with that it is used up. Errors: a *stepError where it had ended of one.
func (s *spare) become(p *program, failed func(), files ...*os.File) (*report, error) {
	b, ok := p.Continuation(s.page)
	if !ok {
		return nil, fmt.Errorf("a program of %d calls is too large", len(p.Calls))
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if err := unix.Sendmsg(int(s.more.Fd()), b, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err != nil {
		return nil, s.reason(os.NewSyscallError("sendmsg", err))
	}
	return reporting(s.report, slices.Concat(s.steps, p.steps), failed), s.more.Close()
}

// reason is why a spare cannot be used: what it reported, or else err.
func (s *spare) reason(err error) error {
	s.kill()
	report := reporting(s.report, s.steps, func() {})
	<-report.done
	if report.err != nil {
		return report.err
	}
	return err
}

// ended says that it is of no use any more.
func (s *spare) ended() (ended bool) {
	raw, err := s.pidfd.SyscallConn()
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

// discard ends it.
func (s *spare) discard() {
	s.kill()
	// Nothing can come of these: it has ended, and what it says is not wanted.
	_ = s.wait()
	_ = errors.Join(s.more.Close(), s.report.Close(), s.pidfd.Close())
}

// stock is the spares that are ready. A provider that makes a second jail will make more, so that it is filled from then on.
type stock struct {
	closing chan struct{} // closed when no more are to be made

	mu     sync.Mutex
	ready  []*spare
	asked  bool // for a refill, once before
	making sync.WaitGroup
	busy   bool // one is under way
}

const (
	// stocked is how many spares there are: a burst finds some, and each costs the kernel a few hundred KiB.
	stocked = 2
	// restFirst is how long making one waits: the jail that was just made has its first command to run.
	restFirst = 10 * time.Millisecond
)

// take gives a spare, or nil where there is none.
func (s *stock) take() *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return nil
	}
	first := s.ready[0]
	s.ready = s.ready[1:]
	return first
}

// refill makes what is missing, in a while. It must not be called after close.
func (s *stock) refill(fresh func() (*spare, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.asked
	s.asked = true
	if !again || s.busy {
		return
	}
	s.busy = true
	s.making.Go(func() {
		rest := time.NewTimer(restFirst)
		defer rest.Stop()
		select {
		case <-s.closing:
		case <-rest.C:
		}
		for s.wants() {
			one, err := fresh()
			if err != nil {
				s.rest() // whoever needs one makes it, and is told why that fails
				return
			}
			s.add(one)
		}
	})
}

// wants says whether one more is to be made; if not, that the refill is over.
func (s *stock) wants() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		s.busy = false
	default:
		s.busy = len(s.ready) < stocked
	}
	return s.busy
}

func (s *stock) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
}

func (s *stock) add(one *spare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, one)
}

// close ends the spares. closing must be closed by then.
func (s *stock) close() {
	s.making.Wait()
	for one := s.take(); one != nil; one = s.take() {
		one.discard()
	}
}
