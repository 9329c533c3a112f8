package link_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

// withoutDescriptors leaves the supervisor no descriptor but those that it has open, the spare one for reading the process table among them. The
// function that it returns ends this. It must come after awaitAccept: what accept4 holds does not show.
func (s *bareSupervisor) withoutDescriptors(t *testing.T) (end func()) {
	t.Helper()
	var limit unix.Rlimit
	testkit.Must(t, unix.Prlimit(s.pid, unix.RLIMIT_NOFILE, nil, &limit))
	file := func(fd uint64) string {
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", s.pid, fd))
		return path
	}
	free := uint64(0)
	for file(free) != "/proc" {
		free++
	}
	for file(free) != "" {
		free++
	}
	testkit.Must(t, unix.Prlimit(s.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: free, Max: limit.Max}, nil))
	return func() { testkit.Must(t, unix.Prlimit(s.pid, unix.RLIMIT_NOFILE, &limit, nil)) }
}

// awaitAccept waits until the supervisor waits in accept4. The kernel has taken the descriptor of the next connection then.
func (s *bareSupervisor) awaitAccept(t *testing.T) {
	t.Helper()
	accepting := fmt.Sprintf("%d ", unix.SYS_ACCEPT4)
	for tick := time.Tick(time.Millisecond); ; <-tick {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", s.pid))
		testkit.Must(t, err)
		for _, file := range files {
			if call, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(call), accepting) {
				return
			}
		}
	}
}

// TestOpenAfterDescriptorsRanOut: a supervisor that had no descriptor for a connection accepts later ones.
func TestOpenAfterDescriptorsRanOut(t *testing.T) {
	s := launch(t)
	first := s.open(t, time.Hour)
	s.awaitAccept(t)
	end := s.withoutDescriptors(t)
	second := s.open(t, time.Hour) // by the accept under way; the one after it fails
	<-first.Done()
	testkit.Must(t, first.Close())
	_, err := second.Start(t.Context(), &wire.Spawn{ID: "p", Path: "/bin/true", Dir: "/"})
	if err == nil || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("start a process without a descriptor: error = %v, want too many open files", err)
	}
	end()
	third := s.open(t, time.Hour)
	<-second.Done()
	testkit.Must(t, second.Close())
	terminate(t, third)
}

// TestKillWithoutDescriptors: a supervisor that cannot read the process table does not take a tree for gone.
func TestKillWithoutDescriptors(t *testing.T) {
	s := launch(t)
	l := s.open(t, time.Hour)
	defer terminate(t, l)
	spawn(t, l, "other", "sleep 300") // so that an orphan may belong to either
	p := spawn(t, l, "p", "setsid sh -c 'echo $$; exec sleep 300' & wait")
	child, err := strconv.Atoi(strings.TrimSpace(read(t, p, 2)))
	testkit.Must(t, err)
	s.awaitAccept(t)
	defer s.withoutDescriptors(t)()
	testkit.Must(t, p.Kill(0))
	wantExit(t, p, schemas.ReasonKilled, 137)
	testkit.Equal(t, "its child runs", testkit.Alive(child), false)
}
