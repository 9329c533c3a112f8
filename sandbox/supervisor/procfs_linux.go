package supervisor

import (
	"bytes"
	"iter"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// processTable reads /proc. Only this process reaps its children and only its main thread has any, so that the list of them,
// read with the trees' mu held, is exact.
type processTable struct {
	children int // the file that lists this process's children; none where the kernel lacks it
	spare    int // a descriptor for the time when the machine has no other left; none while it is in use
	self     int
	buf      []byte
	refused  map[int]time.Time // when the environments that may not be read were refused first
}

func openTable() *processTable {
	t := &processTable{self: syscall.Getpid(), buf: make([]byte, 4<<10), refused: make(map[int]time.Time), children: none, spare: none}
	self := strconv.Itoa(t.self)
	if fd, err := syscall.Open("/proc/self/task/"+self+"/children", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		t.children = fd
	}
	t.reserve()
	return t
}

// orphans are the supervisor's children that it did not start. mu is held.
func (t *trees) orphans() []int {
	var pids []int
	for _, pid := range t.table.own() {
		if t.running[pid] == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// own lists this process's children.
func (t *processTable) own() []int {
	n, err := pread(t.children, t.buf, 0)
	switch {
	case err != nil: // also where the kernel lacks the file
		var pids []int
		t.scan(map[int]bool{t.self: true}, func(pid int) life { pids = append(pids, pid); return running })
		return pids
	case n < len(t.buf)/2:
		return numbers(t.buf[:n])
	}
	// The kernel returns at most a page in one read, whatever the buffer's size, and does not mark the end of the list.
	return numbers(readFrom(t.children))
}

// numbers parses decimal numbers between spaces.
func numbers(b []byte) (list []int) {
	for field := range bytes.FieldsSeq(b) {
		if n, err := strconv.Atoi(string(field)); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// walk visits these processes and all their descendants, each before it lists its children, and the newest first. visit returns what the
// process can still do: one that is gone has no children.
func (t *processTable) walk(roots iter.Seq[int], visit func(pid int) life) {
	if t.children < 0 {
		found := make(map[int]bool)
		for pid := range roots {
			found[pid] = true
			visit(pid)
		}
		t.scan(found, visit)
		return
	}
	for root := range roots {
		for stack := []int{root}; len(stack) > 0; {
			pid := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if visit(pid) == gone {
				continue
			}
			dir := "/proc/" + strconv.Itoa(pid) + "/task/"
			for _, tid := range t.names(dir) {
				if b, err := t.readFile(dir + tid + "/children"); err == nil {
					stack = append(stack, numbers(b)...)
				}
			}
		}
	}
}

// scan visits the descendants of processes, and adds them to these, by reading every process, for kernels built without lists of
// children. It looks a parent up only among the processes found so far, so it repeats until it finds no new one.
func (t *processTable) scan(found map[int]bool, visit func(pid int) life) {
	for grown := true; grown; {
		grown = false
		for _, name := range t.names("/proc") {
			pid, err := strconv.Atoi(name)
			if err != nil || found[pid] {
				continue
			}
			if st, ok := t.readStat(pid); ok && found[st.parent] {
				found[pid], grown = true, true
				visit(pid)
			}
		}
	}
}

type stat struct {
	state           byte
	parent, session int
	rest            []byte // the fields after the session
}

func (s stat) stopped() bool { return s.state == 'T' || s.state == 't' }

// ended reports whether no thread is left. The state is that of the first thread, which may end before others: a zombie counts as one thread.
func (s stat) ended() bool {
	if s.state != 'Z' && s.state != 'X' {
		return false
	}
	fields := numbers(s.rest)
	return len(fields) <= threadCount || fields[threadCount] <= 1
}

// environmentSize is in bytes; false in an exec, where the kernel sets the program's start last, and at the end of a process.
func (s stat) environmentSize() (int, bool) {
	fields := bytes.Fields(s.rest) // some are beyond an int
	if len(fields) <= environmentEnd {
		return 0, false
	}
	start, _ := strconv.Atoi(string(fields[environmentStart]))
	end, _ := strconv.Atoi(string(fields[environmentEnd]))
	return end - start, string(fields[programStart]) != "0"
}

func (t *processTable) readStat(pid int) (stat, bool) {
	return t.readStatFile("/proc/" + strconv.Itoa(pid) + "/stat")
}

func (t *processTable) readStatFile(path string) (stat, bool) {
	b, err := t.readFile(path)
	if err != nil {
		return stat{}, false
	}
	// The name is in parentheses and may contain some: the last one ends it. The state, the parent, the group and the session follow.
	fields := bytes.SplitN(b[bytes.LastIndexByte(b, ')')+1:], []byte{' '}, 6)
	if len(fields) < 6 || len(fields[1]) == 0 {
		return stat{}, false
	}
	parent, err := strconv.Atoi(string(fields[2]))
	session, sessionErr := strconv.Atoi(string(fields[4]))
	return stat{state: fields[1][0], parent: parent, session: session, rest: fields[5]}, err == nil && sessionErr == nil
}

// tick is a clock tick of /proc/PID/stat: the kernel has 100 of them a second for programs, on every architecture that Go knows.
const tick = int64(10 * time.Millisecond)

// Places in stat.rest, from field 7 of proc(5) on: the user and system time of the process and of the children that it waited for, its
// threads, its resident pages, and where its program and its environment are.
const (
	firstTime, lastTime = 14 - 7, 17 - 7
	threadCount         = 20 - 7
	residentPages       = 24 - 7
	programStart        = 26 - 7
	environmentStart    = 50 - 7
	environmentEnd      = 51 - 7
)

// usage is what these processes and their descendants use now.
func (t *processTable) usage(roots iter.Seq[int]) (u wire.Usage, ok bool) {
	page := int64(syscall.Getpagesize())
	t.walk(roots, func(pid int) life {
		st, found := t.readStat(pid)
		fields := numbers(st.rest)
		if !found || st.ended() || len(fields) <= residentPages {
			return gone
		}
		for _, ticks := range fields[firstTime : lastTime+1] {
			u.CPU += int64(ticks) * tick
		}
		u.Memory += int64(fields[residentPages]) * page
		u.Processes++
		return running
	})
	return u, u.Processes > 0
}

// session is the process's session; false when it has ended.
func (t *processTable) session(pid int) (int, bool) {
	st, ok := t.readStat(pid)
	return st.session, ok
}

// life is what the process can still do.
func (t *processTable) life(pid int) life {
	st, ok := t.readStat(pid)
	switch {
	case !ok || st.ended():
		return gone
	case st.state == 'Z':
		return t.lifeOfThreads(pid)
	case st.stopped():
		return stopped
	}
	return running
}

// lifeOfThreads is the life of a process whose first thread has ended.
func (t *processTable) lifeOfThreads(pid int) life {
	all := gone
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	for _, tid := range t.names(dir) {
		switch st, ok := t.readStatFile(dir + tid + "/stat"); {
		case !ok || st.state == 'Z' || st.state == 'X':
		case !st.stopped():
			return running
		default:
			all = stopped
		}
	}
	return all
}

// owner is the process id in the environment of a process; empty when it has none, and where it is another user's. later reports that the
// environment could not be read as a whole: the process is in an exec or ends, or no descriptor was free. In an exec the kernel may also refuse
// it, as it does for good where it is another user's: a refusal counts once it holds for sweepAgain.
func (t *processTable) owner(pid int) (id string, later bool) {
	b, err := t.environment(pid)
	n := len(b)
	for len(b) > 0 {
		entry, rest, whole := bytes.Cut(b, []byte{0})
		if id, ok := bytes.CutPrefix(entry, []byte(ownerVariable)); ok && whole {
			return string(id), false
		}
		b = rest
	}
	if err == syscall.EACCES || err == syscall.EPERM {
		since, known := t.refused[pid]
		if !known {
			since = time.Now()
			t.refused[pid] = since
		}
		return "", time.Since(since) < sweepAgain
	}
	delete(t.refused, pid)
	st, _ := t.readStat(pid)
	size, ok := st.environmentSize()
	return "", !ok || n != size
}

// environment is that of the first thread which has not ended.
func (t *processTable) environment(pid int) (b []byte, err error) {
	dir := "/proc/" + strconv.Itoa(pid)
	if b, err = t.readFile(dir + "/environ"); len(b) > 0 {
		return b, nil
	}
	for _, tid := range t.names(dir + "/task/") {
		if b, err := t.readFile(dir + "/task/" + tid + "/environ"); len(b) > 0 {
			return b, err
		}
	}
	return nil, err
}

// ownerVariable identifies the process that a descendant belongs to.
const ownerVariable = "SLUICE_PROCESS="

// The functions below use package syscall: package os needs half a dozen system calls a file where these need three, and makes the
// program a third larger.

func (t *processTable) readFile(path string) ([]byte, error) {
	fd, err := t.open(path, 0)
	if err != nil {
		return nil, err
	}
	defer t.close(fd)
	return readFrom(fd), nil
}

// readFrom reads all of an open file, up to the first error.
func readFrom(fd int) []byte {
	all := make([]byte, 0, 512)
	for {
		if cap(all)-len(all) < 256 {
			all = append(make([]byte, 0, 4*cap(all)), all...)
		}
		n, err := pread(fd, all[len(all):cap(all)], int64(len(all)))
		if err != nil || n <= 0 {
			return all
		}
		all = all[:len(all)+n]
	}
}

// names are a directory's entries; none when it does not exist.
func (t *processTable) names(dir string) (list []string) {
	fd, err := t.open(dir, syscall.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer t.close(fd)
	b := make([]byte, 8<<10)
	for {
		n, err := retry(func() (int, error) { return syscall.ReadDirent(fd, b) })
		if err != nil || n <= 0 {
			return list
		}
		_, _, list = syscall.ParseDirent(b[:n], -1, list)
	}
}

// openTries and openPause wait for a descriptor of the machine: what cannot be read would count as gone.
const (
	openTries = 100
	openPause = 10 * time.Millisecond
)

// open opens a file of the process table, one at a time. It uses the spare descriptor when there is no other.
func (t *processTable) open(path string, mode int) (fd int, err error) {
	for range openTries {
		fd, err = retry(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|mode, 0) })
		if !scarce(err) {
			break
		}
		if t.spare != none {
			_ = syscall.Close(t.spare)
			t.spare = none
			continue
		}
		time.Sleep(openPause)
	}
	return fd, err
}

// close closes a file, or keeps its descriptor as the spare one.
func (t *processTable) close(fd int) {
	_ = syscall.Close(fd)
	if t.spare == none {
		t.reserve()
	}
}

// reserve takes the spare descriptor, if there is one to take.
func (t *processTable) reserve() {
	var err error
	if t.spare, err = syscall.Open("/proc", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err != nil {
		t.spare = none
	}
}

func pread(fd int, b []byte, offset int64) (int, error) {
	return retry(func() (int, error) { return syscall.Pread(fd, b, offset) })
}
