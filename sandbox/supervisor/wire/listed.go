package wire

// ProcessState is one process in Listed.
type ProcessState struct {
	Handle uint64
	ID     string
	PID    uint32
	// Ended reports that the exit record exists.
	Ended bool
	// Stdout and Stderr are the last acked offsets. The supervisor holds the output after them.
	Stdout, Stderr int64
	// StdinTaken is as in StdinTaken. StdinQueued counts the bytes after it that are not written to the pipe yet. StdinClosed
	// reports that no more will come or be taken; it is true for a process without standard input.
	StdinTaken, StdinQueued int64
	StdinClosed             bool
	// Started is the supervisor's clock, in nanoseconds since 1970.
	Started int64
}

func (m *ProcessState) fields(c *codec) {
	c.u64(&m.Handle)
	c.str(&m.ID)
	c.u32(&m.PID)
	c.flag(&m.Ended)
	c.positive(&m.Stdout, &m.Stderr, &m.StdinTaken, &m.StdinQueued)
	c.flag(&m.StdinClosed)
	c.i64(&m.Started)
}

// Listed answers List: every process, running, or ended and not released.
type Listed struct {
	Processes []ProcessState
	// Usages are those of the processes that run, for a List that asks for them; none where the supervisor cannot measure.
	Usages []Usage
}

func (*Listed) kind() Type { return TypeListed }

func (m *Listed) fields(c *codec) {
	list(c, &m.Processes, smallest(new(ProcessState)), func(c *codec, p *ProcessState) { p.fields(c) })
	list(c, &m.Usages, smallest(new(Usage)), func(c *codec, u *Usage) { u.fields(c) })
}

// Usage is what the tree of one process uses now.
type Usage struct {
	Handle uint64
	// CPU is nanoseconds, of what runs and of its children that were waited for. Memory is the sum of the resident sets, in bytes.
	CPU, Memory int64
	Processes   uint32
}

func (m *Usage) fields(c *codec) {
	c.u64(&m.Handle)
	c.positive(&m.CPU, &m.Memory)
	c.u32(&m.Processes)
}

// smallest is the size of an empty member of a list.
func smallest(m interface{ fields(*codec) }) int {
	c := codec{mode: measuring}
	m.fields(&c)
	return c.size
}
