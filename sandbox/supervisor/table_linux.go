package supervisor

import (
	"bytes"
	"strconv"
	"syscall"
)

// table reads /proc. Only this process reaps its children and only its main thread has any, so that the list of them,
// read with the supervisor's mu held, is exact.
type table struct {
	children int // the file that lists this process's children; -1 where the kernel has none
	self     int
	buf      []byte
}

func openTable() *table {
	t := &table{self: syscall.Getpid(), buf: make([]byte, 4<<10), children: -1}
	self := strconv.Itoa(t.self)
	if fd, err := syscall.Open("/proc/self/task/"+self+"/children", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		t.children = fd
	}
	return t
}

// strays are the supervisor's children that it did not start: orphans it has adopted. mu is held.
func (s *supervisor) strays() []int {
	var pids []int
	for _, pid := range s.table.own() {
		if s.mains[pid] == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// own lists this process's children.
func (t *table) own() []int {
	if t.children < 0 {
		return scan(map[int]bool{t.self: true})
	}
	for {
		n, err := syscall.Pread(t.children, t.buf, 0)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return scan(map[int]bool{t.self: true})
		}
		// The kernel gives a page at most for one read, whatever the buffer's size, and where it ends is not told.
		all := t.buf[:n]
		if n < len(t.buf)/2 {
			return numbers(all)
		}
		return numbers(readFrom(t.children))
	}
}

// numbers reads decimal numbers between spaces.
func numbers(b []byte) (list []int) {
	n, in := 0, false
	for _, c := range b {
		if c >= '0' && c <= '9' {
			n, in = n*10+int(c-'0'), true
			continue
		}
		if in {
			list = append(list, n)
		}
		n, in = 0, false
	}
	if in {
		list = append(list, n)
	}
	return list
}

// walk visits these and all their descendants, each before its children are listed.
func (t *table) walk(pids []int, visit func(pid int)) {
	if t.children < 0 {
		roots := make(map[int]bool, len(pids))
		for _, pid := range pids {
			roots[pid] = true
			visit(pid)
		}
		for _, pid := range scan(roots) {
			visit(pid)
		}
		return
	}
	queue := append([]int(nil), pids...)
	for i := 0; i < len(queue); i++ {
		visit(queue[i])
		dir := "/proc/" + strconv.Itoa(queue[i]) + "/task/"
		for _, tid := range names(dir) {
			if b, err := readFile(dir + tid + "/children"); err == nil {
				queue = append(queue, numbers(b)...)
			}
		}
	}
}

// scan finds the descendants of these by reading every process there is, for kernels built without lists of children. It
// only looks a parent up among those seen so far, so it goes on until nothing new is found.
func scan(roots map[int]bool) (found []int) {
	for {
		grown := false
		for _, name := range names("/proc") {
			pid, err := strconv.Atoi(name)
			if err != nil || roots[pid] {
				continue
			}
			if st, ok := readStat(pid); ok && roots[st.parent] {
				roots[pid] = true
				found = append(found, pid)
				grown = true
			}
		}
		if !grown {
			return found
		}
	}
}

type stat struct {
	state           byte
	parent, session int
}

func readStat(pid int) (stat, bool) {
	b, err := readFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	// The name stands in parentheses and may hold some itself: the last one ends it.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 || i+2 >= len(b) {
		return stat{}, false
	}
	n := numbers(b[i+3:])
	if len(n) < 3 {
		return stat{}, false
	}
	return stat{state: b[i+2], parent: n[0], session: n[2]}, true
}

// session is the session a process is in; false when it has ended.
func (t *table) session(pid int) (int, bool) {
	st, ok := readStat(pid)
	return st.session, ok
}

// zombie says whether a process has ended already, or is not there.
func (t *table) zombie(pid int) bool {
	st, ok := readStat(pid)
	return !ok || st.state == 'Z' || st.state == 'X'
}

// owner is the process id in an orphan's environment; empty when it cannot be read or does not say.
func (t *table) owner(pid int) string {
	b, err := readFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for len(b) > 0 {
		var entry []byte
		entry, b, _ = bytes.Cut(b, []byte{0})
		if id, ok := bytes.CutPrefix(entry, []byte(ownerVariable)); ok {
			return string(id)
		}
	}
	return ""
}

// ownerVariable tells every descendant of a process whose it is.
const ownerVariable = "SLUICE_PROCESS="
