package wire

// Hello is the first frame in both directions.
type Hello struct {
	// Version is the sender's Version.
	Version uint32
	// PID is the sender's process id, as it sees it itself.
	PID uint32
	// ReattachWindow is, from the host, how long the supervisor stays after this connection ends, in nanoseconds: 0 ends
	// the sandbox at once. The supervisor answers with the value it will use.
	ReattachWindow int64
}

func (*Hello) kind() Type { return TypeHello }

func (m *Hello) fields(c *codec) {
	c.u32(&m.Version)
	c.u32(&m.PID)
	c.positive(&m.ReattachWindow)
}

// Spawn starts a process. Spawned or Failed answers it.
type Spawn struct {
	// Handle names the process from here on. It must not be in use.
	Handle uint64
	// ID is the process id, which Listed returns.
	ID string
	// Path is the program, looked up in the PATH of Env unless it holds a slash, or FilesPath; Args are its arguments without
	// its name; Env its whole environment as NAME=value.
	Path string
	Args []string
	Env  []string
	// Dir is the working directory, absolute.
	Dir string
	// Stdin asks for a standard input; otherwise it is /dev/null.
	Stdin bool
	// Timeout and Grace are nanoseconds; a Timeout of 0 is never.
	Timeout, Grace int64
	// Rows and Cols are the size of the process's terminal, which is its standard input, output and error. Its output is Stdout. With
	// 0 rows it has pipes and no terminal.
	Rows, Cols uint32
}

func (*Spawn) kind() Type { return TypeSpawn }

func (m *Spawn) fields(c *codec) {
	c.u64(&m.Handle)
	c.str(&m.ID)
	c.str(&m.Path)
	c.strs(&m.Args)
	c.strs(&m.Env)
	c.str(&m.Dir)
	c.flag(&m.Stdin)
	c.positive(&m.Timeout, &m.Grace)
	c.short(&m.Rows, &m.Cols)
}

// FilesPath is the Path of the supervisor's own program for files. No program of a sandbox can have it: a supervisor without that
// program answers Failed.
const FilesPath = "\x00files"

// The streams of Ack and Output.
const (
	Stdout byte = 1
	Stderr byte = 2
)

// Ack confirms that the output of a stream up to Offset is stored: the supervisor may drop it.
type Ack struct {
	Handle uint64
	Stream byte
	Offset int64
}

func (*Ack) kind() Type { return TypeAck }

func (m *Ack) fields(c *codec) {
	c.u64(&m.Handle)
	enum(c, &m.Stream, Stdout, Stderr)
	c.positive(&m.Offset)
}

// Stdin carries bytes for a process's standard input, at most MaxStdin.
type Stdin struct {
	Handle uint64
	Data   []byte
}

func (*Stdin) kind() Type { return TypeStdin }

func (m *Stdin) fields(c *codec) {
	c.u64(&m.Handle)
	c.rest(&m.Data, MaxStdin)
}

// StdinEOF closes a process's standard input after the bytes sent so far.
type StdinEOF struct{ Handle uint64 }

func (*StdinEOF) kind() Type        { return TypeStdinEOF }
func (m *StdinEOF) fields(c *codec) { c.u64(&m.Handle) }

// Release makes the supervisor forget a process whose exit record is stored.
type Release struct{ Handle uint64 }

func (*Release) kind() Type        { return TypeRelease }
func (m *Release) fields(c *codec) { c.u64(&m.Handle) }

// Signal sends a signal to the process's group. Signaled answers it, with the same Seq.
type Signal struct {
	Handle uint64
	Seq    uint32
	Signal uint32
}

func (*Signal) kind() Type { return TypeSignal }

func (m *Signal) fields(c *codec) {
	c.u64(&m.Handle)
	c.u32(&m.Seq)
	c.u32(&m.Signal)
}

// Kill ends a process's whole tree: SIGTERM, Grace nanoseconds, SIGKILL.
type Kill struct {
	Handle uint64
	Grace  int64
}

func (*Kill) kind() Type { return TypeKill }

func (m *Kill) fields(c *codec) {
	c.u64(&m.Handle)
	c.positive(&m.Grace)
}

// Resume moves a process to this connection. The supervisor sends its output from these offsets on, or from the last acked ones
// where those are later, and its exit record if it has ended.
type Resume struct {
	Handle         uint64
	Stdout, Stderr int64
}

func (*Resume) kind() Type { return TypeResume }

func (m *Resume) fields(c *codec) {
	c.u64(&m.Handle)
	c.positive(&m.Stdout, &m.Stderr)
}

// Resize changes the size of a process's terminal. A process without one ignores it.
type Resize struct {
	Handle     uint64
	Rows, Cols uint32
}

func (*Resize) kind() Type { return TypeResize }

func (m *Resize) fields(c *codec) {
	c.u64(&m.Handle)
	c.short(&m.Rows, &m.Cols)
}

// Terminate ends every process and then the supervisor: SIGTERM, Grace nanoseconds, SIGKILL.
type Terminate struct{ Grace int64 }

func (*Terminate) kind() Type        { return TypeTerminate }
func (m *Terminate) fields(c *codec) { c.positive(&m.Grace) }

// List asks for Listed.
type List struct {
	// Usage asks for Listed.Usages too.
	Usage bool
}

func (*List) kind() Type        { return TypeList }
func (m *List) fields(c *codec) { c.flag(&m.Usage) }

// Spawned reports that a process runs.
type Spawned struct {
	Handle uint64
	PID    uint32
	// Started is the supervisor's clock, in nanoseconds since 1970.
	Started int64
}

func (*Spawned) kind() Type { return TypeSpawned }

func (m *Spawned) fields(c *codec) {
	c.u64(&m.Handle)
	c.u32(&m.PID)
	c.i64(&m.Started)
}

// Cause is why a process could not be started. It is not an errno, because those numbers differ between systems.
type Cause byte

// The causes.
const (
	CauseOther         Cause = iota // a fault of the supervisor or of the system
	CauseNotFound                   // the program does not exist
	CauseNotExecutable              // the program exists and cannot be executed
	CauseTooLong                    // arguments and environment exceed the system's limit
	CauseDir                        // the working directory does not exist
	CauseBusy                       // no process, memory or descriptor is available now
	CauseDuplicate                  // the handle or the id is in use
	CauseEnding                     // the sandbox is being terminated
)

// Failed reports that a process could not be started.
type Failed struct {
	Handle uint64
	Cause  Cause
	// Detail is for people: what failed, and the system's error text.
	Detail string
}

func (*Failed) kind() Type { return TypeFailed }

func (m *Failed) fields(c *codec) {
	c.u64(&m.Handle)
	enum(c, &m.Cause, CauseOther, CauseEnding)
	c.str(&m.Detail)
}

// Output is the head of a piece of output; the frame's remaining bytes are the piece. It is no Message: neither end copies the
// piece, and encoding or decoding the head allocates nothing.
type Output struct {
	Handle uint64
	Stream byte
	// Offset is the number of bytes of the stream before this piece.
	Offset int64
}

const (
	// OutputHead is how many bytes of an output frame's payload come before the output itself.
	OutputHead = 8 + 1 + 8
	// OutputFrame is how many bytes of the whole frame come before the output. A supervisor leaves that much room before the
	// bytes it reads, so that it sends the frame without a copy.
	OutputFrame = headSize + OutputHead
)

// Put writes the first OutputFrame bytes of a frame that carries n bytes of output into b.
func (m *Output) Put(b []byte, n int) {
	b = b[:OutputFrame]
	seal(b, OutputFrame+n)
	b[4] = byte(TypeOutput)
	put64(b[5:], m.Handle)
	b[13] = m.Stream
	put64(b[14:], uint64(m.Offset))
}

// Decode reads the first OutputHead bytes of a payload. Errors: ErrPayload.
func (m *Output) Decode(b []byte) error {
	if len(b) < OutputHead {
		return ErrPayload
	}
	m.Handle, m.Stream, m.Offset = get64(b), b[8], int64(get64(b[9:]))
	if m.Stream < Stdout || m.Stream > Stderr || m.Offset < 0 {
		return ErrPayload
	}
	return nil
}

// StdinTaken reports how much of the standard input has been written to the process's pipe.
type StdinTaken struct {
	Handle uint64
	// Taken counts bytes from the start.
	Taken int64
	// Closed reports that the process takes no more: it has closed its end, or has ended.
	Closed bool
}

func (*StdinTaken) kind() Type { return TypeStdinTaken }

func (m *StdinTaken) fields(c *codec) {
	c.u64(&m.Handle)
	c.positive(&m.Taken)
	c.flag(&m.Closed)
}

// SignalResult is the answer in Signaled.
type SignalResult byte

// The results.
const (
	SignalSent   SignalResult = iota // the signal was sent
	SignalGone                       // the process has ended
	SignalBad                        // the system has no such signal
	SignalDenied                     // the system did not allow it
)

// Signaled answers Signal.
type Signaled struct {
	Handle uint64
	Seq    uint32
	Result SignalResult
}

func (*Signaled) kind() Type { return TypeSignaled }

func (m *Signaled) fields(c *codec) {
	c.u64(&m.Handle)
	c.u32(&m.Seq)
	enum(c, &m.Result, SignalSent, SignalDenied)
}

// Reason is how a process ended.
type Reason byte

// The reasons.
const (
	ReasonExited   Reason = iota // by itself
	ReasonKilled                 // by a signal
	ReasonTimedOut               // by its timeout
	ReasonOOM                    // by its memory limit
)

// Exit is the exit record.
type Exit struct {
	Handle uint64
	Reason Reason
	// Code is the exit code, and Signal the signal that ended the process; one of the two is 0.
	Code, Signal uint32
	// Stdout and Stderr are the bytes printed on each.
	Stdout, Stderr int64
	// UserTime and SystemTime are nanoseconds, MaxRSS is bytes.
	UserTime, SystemTime, MaxRSS int64
	// Killed counts the processes of its tree that were left when it ended.
	Killed uint32
	// Started and Ended are the supervisor's clock, in nanoseconds since 1970.
	Started, Ended int64
}

func (*Exit) kind() Type { return TypeExit }

func (m *Exit) fields(c *codec) {
	c.u64(&m.Handle)
	enum(c, &m.Reason, ReasonExited, ReasonOOM)
	c.u32(&m.Code)
	c.u32(&m.Signal)
	c.positive(&m.Stdout, &m.Stderr, &m.UserTime, &m.SystemTime, &m.MaxRSS)
	c.u32(&m.Killed)
	c.i64(&m.Started)
	c.i64(&m.Ended)
}

// newMessage makes an empty message of each type; nil for Output and for the numbers between.
var newMessage = [...]func() Message{
	TypeHello:      func() Message { return new(Hello) },
	TypeSpawn:      func() Message { return new(Spawn) },
	TypeAck:        func() Message { return new(Ack) },
	TypeStdin:      func() Message { return new(Stdin) },
	TypeStdinEOF:   func() Message { return new(StdinEOF) },
	TypeSignal:     func() Message { return new(Signal) },
	TypeKill:       func() Message { return new(Kill) },
	TypeList:       func() Message { return new(List) },
	TypeResume:     func() Message { return new(Resume) },
	TypeRelease:    func() Message { return new(Release) },
	TypeTerminate:  func() Message { return new(Terminate) },
	TypeResize:     func() Message { return new(Resize) },
	TypeConnect:    func() Message { return new(Connect) },
	TypeSpawned:    func() Message { return new(Spawned) },
	TypeFailed:     func() Message { return new(Failed) },
	TypeStdinTaken: func() Message { return new(StdinTaken) },
	TypeSignaled:   func() Message { return new(Signaled) },
	TypeExit:       func() Message { return new(Exit) },
	TypeListed:     func() Message { return new(Listed) },
	TypeConnected:  func() Message { return new(Connected) },
}
