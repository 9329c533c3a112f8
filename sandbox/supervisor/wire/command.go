package wire

// Hello is the first frame in both directions.
type Hello struct {
	// Version is the sender's Version.
	Version uint32
	// PID is the sender's process id, as it sees it itself.
	PID uint32
	// ReattachWindow is, from the host, how long the supervisor stays when this connection ends, in nanoseconds: 0 ends
	// everything at once. The supervisor answers with what it will do.
	ReattachWindow int64
}

// Append adds the whole frame to b.
func (m *Hello) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeHello)
	b = appendU32(b, m.Version)
	b = appendU32(b, m.PID)
	b = appendU64(b, uint64(m.ReattachWindow))
	return seal(b, start)
}

// Decode reads a payload.
func (m *Hello) Decode(b []byte) error {
	p := parser{b: b}
	*m = Hello{Version: p.u32(), PID: p.u32(), ReattachWindow: p.offset()}
	return p.end()
}

// Spawn asks for a process.
type Spawn struct {
	// Handle names the process from here on. It may not be in use.
	Handle uint64
	// ID is the process id that Listed tells again.
	ID string
	// Path is the program, looked up in the PATH of Env unless it holds a slash; Args are its arguments without its
	// name; Env its whole environment as NAME=value.
	Path string
	Args []string
	Env  []string
	// Dir is the working directory, absolute.
	Dir string
	// Stdin asks for a pipe as standard input; otherwise it is /dev/null.
	Stdin bool
	// Timeout and Grace are nanoseconds; a Timeout of 0 is never.
	Timeout, Grace int64
}

// Append adds the whole frame to b.
func (m *Spawn) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeSpawn)
	b = appendU64(b, m.Handle)
	b = appendString(b, m.ID)
	b = appendString(b, m.Path)
	b = appendStrings(b, m.Args)
	b = appendStrings(b, m.Env)
	b = appendString(b, m.Dir)
	b = appendBool(b, m.Stdin)
	b = appendU64(b, uint64(m.Timeout))
	b = appendU64(b, uint64(m.Grace))
	return seal(b, start)
}

// Size is how many bytes Append adds at the least, to refuse too large a command before it is copied.
func (m *Spawn) Size() int {
	n := 64 + len(m.ID) + len(m.Path) + len(m.Dir)
	for _, s := range m.Args {
		n += 4 + len(s)
	}
	for _, s := range m.Env {
		n += 4 + len(s)
	}
	return n
}

// Decode reads a payload.
func (m *Spawn) Decode(b []byte) error {
	p := parser{b: b}
	*m = Spawn{
		Handle: p.u64(), ID: p.str(), Path: p.str(), Args: p.strs(), Env: p.strs(), Dir: p.str(),
		Stdin: p.flag(), Timeout: p.offset(), Grace: p.offset(),
	}
	return p.end()
}

// The streams of Ack and Output.
const (
	Stdout byte = 1
	Stderr byte = 2
)

// Ack says that the output of a stream up to Offset is kept safe elsewhere.
type Ack struct {
	Handle uint64
	Stream byte
	Offset int64
}

// Append adds the whole frame to b.
func (m *Ack) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeAck)
	b = appendU64(b, m.Handle)
	b = append(b, m.Stream)
	b = appendU64(b, uint64(m.Offset))
	return seal(b, start)
}

// Decode reads a payload.
func (m *Ack) Decode(b []byte) error {
	p := parser{b: b}
	*m = Ack{Handle: p.u64(), Stream: p.stream(), Offset: p.offset()}
	return p.end()
}

// Stdin carries bytes for a process's standard input, at most MaxStdin.
type Stdin struct {
	Handle uint64
	Data   []byte
}

// Append adds the whole frame to b.
func (m *Stdin) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeStdin)
	b = appendU64(b, m.Handle)
	b = append(b, m.Data...)
	return seal(b, start)
}

// Decode reads a payload. Data is part of b.
func (m *Stdin) Decode(b []byte) error {
	p := parser{b: b}
	*m = Stdin{Handle: p.u64()}
	if len(p.b) > MaxStdin {
		return ErrPayload
	}
	m.Data = p.take(len(p.b))
	return p.end()
}

// Handle is the payload of StdinEOF and Release.
type Handle uint64

// Append adds the whole frame of type t to b.
func (m Handle) Append(b []byte, t Type) []byte {
	start := len(b)
	return seal(appendU64(begin(b, t), uint64(m)), start)
}

// Decode reads a payload.
func (m *Handle) Decode(b []byte) error {
	p := parser{b: b}
	*m = Handle(p.u64())
	return p.end()
}

// Signal sends a signal to the process's group. Signaled answers it, with the same Seq.
type Signal struct {
	Handle uint64
	Seq    uint32
	Signal uint32
}

// Append adds the whole frame to b.
func (m *Signal) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeSignal)
	b = appendU64(b, m.Handle)
	b = appendU32(b, m.Seq)
	b = appendU32(b, m.Signal)
	return seal(b, start)
}

// Decode reads a payload.
func (m *Signal) Decode(b []byte) error {
	p := parser{b: b}
	*m = Signal{Handle: p.u64(), Seq: p.u32(), Signal: p.u32()}
	return p.end()
}

// Kill ends a process's whole tree: SIGTERM, Grace nanoseconds, SIGKILL.
type Kill struct {
	Handle uint64
	Grace  int64
}

// Append adds the whole frame to b.
func (m *Kill) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeKill)
	b = appendU64(b, m.Handle)
	b = appendU64(b, uint64(m.Grace))
	return seal(b, start)
}

// Decode reads a payload.
func (m *Kill) Decode(b []byte) error {
	p := parser{b: b}
	*m = Kill{Handle: p.u64(), Grace: p.offset()}
	return p.end()
}

// Resume takes a process over on a new connection. Its output follows from these offsets, or from the last acked ones
// where those are later, and its exit record if it has ended.
type Resume struct {
	Handle         uint64
	Stdout, Stderr int64
}

// Append adds the whole frame to b.
func (m *Resume) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeResume)
	b = appendU64(b, m.Handle)
	b = appendU64(b, uint64(m.Stdout))
	b = appendU64(b, uint64(m.Stderr))
	return seal(b, start)
}

// Decode reads a payload.
func (m *Resume) Decode(b []byte) error {
	p := parser{b: b}
	*m = Resume{Handle: p.u64(), Stdout: p.offset(), Stderr: p.offset()}
	return p.end()
}

// Terminate ends every process, and then the supervisor: SIGTERM, Grace nanoseconds, SIGKILL.
type Terminate struct{ Grace int64 }

// Append adds the whole frame to b.
func (m *Terminate) Append(b []byte) []byte {
	start := len(b)
	return seal(appendU64(begin(b, TypeTerminate), uint64(m.Grace)), start)
}

// Decode reads a payload.
func (m *Terminate) Decode(b []byte) error {
	p := parser{b: b}
	*m = Terminate{Grace: p.offset()}
	return p.end()
}

// AppendList adds the frame that asks for Listed.
func AppendList(b []byte) []byte {
	start := len(b)
	return seal(begin(b, TypeList), start)
}

// stream is one of the two streams.
func (p *parser) stream() byte {
	v := p.u8()
	if v != Stdout && v != Stderr {
		p.bad = true
	}
	return v
}
