package wire

// Spawned says that a process runs.
type Spawned struct {
	Handle uint64
	PID    uint32
	// Started is the supervisor's clock, in nanoseconds since 1970.
	Started int64
}

// Append adds the whole frame to b.
func (m *Spawned) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeSpawned)
	b = appendU64(b, m.Handle)
	b = appendU32(b, m.PID)
	b = appendU64(b, uint64(m.Started))
	return seal(b, start)
}

// Decode reads a payload.
func (m *Spawned) Decode(b []byte) error {
	p := parser{b: b}
	*m = Spawned{Handle: p.u64(), PID: p.u32(), Started: p.i64()}
	return p.end()
}

// Cause is why a process could not be started. Numbers of errno would not do: they differ between systems.
type Cause byte

// The causes.
const (
	CauseOther         Cause = iota // a fault of the supervisor or of the system
	CauseNotFound                   // no such program
	CauseNotExecutable              // it is there, and may not or cannot be run
	CauseTooLong                    // arguments and environment are larger than the system takes
	CauseDir                        // the working directory is not there
	CauseBusy                       // no process, memory or descriptor to be had now
	CauseDuplicate                  // the handle or the id is in use
	CauseEnding                     // the sandbox is being terminated
	causes
)

// Failed says that a process could not be started.
type Failed struct {
	Handle uint64
	Cause  Cause
	// Detail is for people: what failed and the system's word for why.
	Detail string
}

// Append adds the whole frame to b.
func (m *Failed) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeFailed)
	b = appendU64(b, m.Handle)
	b = append(b, byte(m.Cause))
	b = appendString(b, m.Detail)
	return seal(b, start)
}

// Decode reads a payload.
func (m *Failed) Decode(b []byte) error {
	p := parser{b: b}
	*m = Failed{Handle: p.u64(), Cause: Cause(p.u8()), Detail: p.str()}
	if m.Cause >= causes {
		return ErrPayload
	}
	return p.end()
}

// Output is the head of a piece of output; the frame's remaining bytes are the piece.
type Output struct {
	Handle uint64
	Stream byte
	// Offset is the number of bytes of the stream before this piece.
	Offset int64
}

const (
	// OutputHead is how many bytes of an output frame's payload come before the output itself.
	OutputHead = 8 + 1 + 8
	// OutputFrame is how many bytes of the whole frame do: a supervisor leaves that much room before what it reads, and
	// has the frame in one piece without copying.
	OutputFrame = headSize + OutputHead
)

// Put writes the first OutputFrame bytes of a frame that carries n bytes of output into b.
func (m *Output) Put(b []byte, n int) {
	f := begin(b[:0], TypeOutput)
	f = appendU64(f, m.Handle)
	f = append(f, m.Stream)
	f = appendU64(f, uint64(m.Offset))
	size := uint32(len(f) - 4 + n)
	f[0], f[1], f[2], f[3] = byte(size), byte(size>>8), byte(size>>16), byte(size>>24)
}

// Decode reads the first OutputHead bytes of a payload.
func (m *Output) Decode(b []byte) error {
	p := parser{b: b}
	*m = Output{Handle: p.u64(), Stream: p.stream(), Offset: p.offset()}
	return p.end()
}

// StdinTaken says how much of the standard input has been written to the process's pipe.
type StdinTaken struct {
	Handle uint64
	// Taken counts bytes from the start.
	Taken int64
	// Closed says that no more will be taken: the process has closed its end, or has ended.
	Closed bool
}

// Append adds the whole frame to b.
func (m *StdinTaken) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeStdinTaken)
	b = appendU64(b, m.Handle)
	b = appendU64(b, uint64(m.Taken))
	b = appendBool(b, m.Closed)
	return seal(b, start)
}

// Decode reads a payload.
func (m *StdinTaken) Decode(b []byte) error {
	p := parser{b: b}
	*m = StdinTaken{Handle: p.u64(), Taken: p.offset(), Closed: p.flag()}
	return p.end()
}

// SignalResult is the answer in Signaled.
type SignalResult byte

// The results.
const (
	SignalSent   SignalResult = iota // it was sent
	SignalGone                       // the process has ended
	SignalBad                        // the system knows no such signal
	SignalDenied                     // the system did not allow it
	signalResults
)

// Signaled answers Signal.
type Signaled struct {
	Handle uint64
	Seq    uint32
	Result SignalResult
}

// Append adds the whole frame to b.
func (m *Signaled) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeSignaled)
	b = appendU64(b, m.Handle)
	b = appendU32(b, m.Seq)
	b = append(b, byte(m.Result))
	return seal(b, start)
}

// Decode reads a payload.
func (m *Signaled) Decode(b []byte) error {
	p := parser{b: b}
	*m = Signaled{Handle: p.u64(), Seq: p.u32(), Result: SignalResult(p.u8())}
	if m.Result >= signalResults {
		return ErrPayload
	}
	return p.end()
}

// Reason is how a process ended.
type Reason byte

// The reasons.
const (
	ReasonExited   Reason = iota // by itself
	ReasonKilled                 // by a signal
	ReasonTimedOut               // by its timeout
	ReasonOOM                    // by its memory limit
	reasons
)

// Exit is the exit record.
type Exit struct {
	Handle uint64
	Reason Reason
	// Code is the exit code, and Signal the signal that ended it; one of the two is 0.
	Code, Signal uint32
	// Stdout and Stderr are the bytes printed on each.
	Stdout, Stderr int64
	// UserTime and SystemTime are nanoseconds, MaxRSS is bytes.
	UserTime, SystemTime, MaxRSS int64
	// Killed counts processes left of its tree when it ended.
	Killed uint32
	// Started and Ended are the supervisor's clock, in nanoseconds since 1970.
	Started, Ended int64
}

// Append adds the whole frame to b.
func (m *Exit) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeExit)
	b = appendU64(b, m.Handle)
	b = append(b, byte(m.Reason))
	b = appendU32(b, m.Code)
	b = appendU32(b, m.Signal)
	for _, v := range [...]int64{m.Stdout, m.Stderr, m.UserTime, m.SystemTime, m.MaxRSS} {
		b = appendU64(b, uint64(v))
	}
	b = appendU32(b, m.Killed)
	b = appendU64(b, uint64(m.Started))
	b = appendU64(b, uint64(m.Ended))
	return seal(b, start)
}

// Decode reads a payload.
func (m *Exit) Decode(b []byte) error {
	p := parser{b: b}
	*m = Exit{
		Handle: p.u64(), Reason: Reason(p.u8()), Code: p.u32(), Signal: p.u32(),
		Stdout: p.offset(), Stderr: p.offset(), UserTime: p.offset(), SystemTime: p.offset(), MaxRSS: p.offset(),
		Killed: p.u32(), Started: p.i64(), Ended: p.i64(),
	}
	if m.Reason >= reasons {
		return ErrPayload
	}
	return p.end()
}

// Held is what a supervisor knows of one process, in Listed.
type Held struct {
	Handle uint64
	ID     string
	PID    uint32
	// Ended says that the exit record is there.
	Ended bool
	// Stdout and Stderr are the offsets from which output is still held, that is, the last acked ones.
	Stdout, Stderr int64
	// StdinTaken is as in StdinTaken, and StdinQueued what came after it and is not written to the pipe yet. StdinClosed says
	// that no more will come or be taken; it is true where there is no standard input.
	StdinTaken, StdinQueued int64
	StdinClosed             bool
	// Started is the supervisor's clock, in nanoseconds since 1970.
	Started int64
}

// heldSize is the fewest bytes one Held can take.
const heldSize = 8 + 4 + 4 + 1 + 8 + 8 + 8 + 8 + 1 + 8

// Listed answers List.
type Listed struct{ Processes []Held }

// Append adds the whole frame to b.
func (m *Listed) Append(b []byte) []byte {
	start := len(b)
	b = begin(b, TypeListed)
	b = appendU32(b, uint32(len(m.Processes)))
	for i := range m.Processes {
		h := &m.Processes[i]
		b = appendU64(b, h.Handle)
		b = appendString(b, h.ID)
		b = appendU32(b, h.PID)
		b = appendBool(b, h.Ended)
		b = appendU64(b, uint64(h.Stdout))
		b = appendU64(b, uint64(h.Stderr))
		b = appendU64(b, uint64(h.StdinTaken))
		b = appendU64(b, uint64(h.StdinQueued))
		b = appendBool(b, h.StdinClosed)
		b = appendU64(b, uint64(h.Started))
	}
	return seal(b, start)
}

// Decode reads a payload.
func (m *Listed) Decode(b []byte) error {
	p := parser{b: b}
	*m = Listed{}
	if n := p.count(heldSize); n > 0 {
		m.Processes = make([]Held, n)
	}
	for i := range m.Processes {
		m.Processes[i] = Held{
			Handle: p.u64(), ID: p.str(), PID: p.u32(), Ended: p.flag(), Stdout: p.offset(), Stderr: p.offset(),
			StdinTaken: p.offset(), StdinQueued: p.offset(), StdinClosed: p.flag(), Started: p.i64(),
		}
	}
	return p.end()
}
