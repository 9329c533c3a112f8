package wire

import (
	"bufio"
	"io"
)

const (
	// Version is this package's version of the protocol. Each end sends it in Hello.
	Version = 5
	// MinVersion is the oldest version that each end accepts in Hello. See the package's documentation for the rules. A version 1
	// message cannot be read: version 2 put a field inside the members of Listed.
	MinVersion = 2
)

const (
	// MaxFrame is the most bytes a frame may have after its size field: 8 MiB, above the limit of Linux for the arguments
	// and the environment of one program under the default stack limit (2 MiB), so that the system's own limit decides.
	MaxFrame = 8 << 20
	// MaxOutput is the most bytes of output in one frame: 256 KiB, from where on larger reads measure no faster.
	MaxOutput = 256 << 10
	// Window is how many bytes of a stream the supervisor sends beyond the last acked one: 4 MiB.
	Window = 4 << 20
	// Tail is how many bytes of a stream may come beyond the window once the process has ended: the rest of its pipe (1 MiB),
	// so that the end of a process never waits for an ack.
	Tail = 2 << 20
	// StdinWindow is how many bytes of standard input the host may send beyond the last StdinTaken: 256 KiB.
	StdinWindow = 256 << 10
	// UsageVersion is the version from which on supervisors measure processes: List.Usage and Listed.Usages.
	UsageVersion = 3
	// TerminalVersion is the version from which on supervisors have terminals: Spawn.Rows and Cols, and Resize.
	TerminalVersion = 4
	// MaxStdin is the most bytes of standard input in one frame: 64 KiB, a pipe's usual size.
	MaxStdin = 64 << 10
)

// Type is a frame's type, its first byte after the size.
type Type byte

// The frames that a host sends. A supervisor sends Hello too.
const (
	TypeHello     Type = 1
	TypeSpawn     Type = 2
	TypeAck       Type = 3
	TypeStdin     Type = 4
	TypeStdinEOF  Type = 5
	TypeSignal    Type = 6
	TypeKill      Type = 7
	TypeList      Type = 8
	TypeResume    Type = 9
	TypeRelease   Type = 10
	TypeTerminate Type = 11
	TypeResize    Type = 12 // from version 4 on
	TypeConnect   Type = 13 // from version 5 on
)

// The frames that a supervisor sends.
const (
	TypeSpawned    Type = 65
	TypeFailed     Type = 66
	TypeOutput     Type = 67
	TypeStdinTaken Type = 68
	TypeSignaled   Type = 69
	TypeExit       Type = 70
	TypeListed     Type = 71
	TypeConnected  Type = 72 // from version 5 on
)

// Error is a protocol violation of the peer.
type Error string

// Error is the text.
func (e Error) Error() string { return string(e) }

// The protocol violations. The end that finds one closes the connection, because it cannot trust the bytes that follow.
const (
	ErrFrameSize Error = "wire: frame size is 0 or above the maximum"
	ErrPayload   Error = "wire: payload is malformed"
	ErrVersion   Error = "wire: unsupported protocol version"
	ErrOrder     Error = "wire: unexpected frame"
)

// Reader reads frames from a stream.
type Reader struct {
	src  *bufio.Reader
	rest int
}

// readAhead is small because bufio copies what it has read ahead, and large output frames should not be copied.
const readAhead = 4 << 10

// NewReader reads frames from src.
func NewReader(src io.Reader) *Reader { return &Reader{src: bufio.NewReaderSize(src, readAhead)} }

// Next reads the head of the next frame and returns its type and its payload's size in bytes. It skips the rest of the payload
// before. It returns io.EOF only between two frames.
func (r *Reader) Next() (Type, int, error) {
	if r.rest > 0 {
		if _, err := r.src.Discard(r.rest); err != nil {
			return 0, 0, unexpected(err)
		}
		r.rest = 0
	}
	var head [headSize]byte
	if _, err := io.ReadFull(r.src, head[:]); err != nil {
		return 0, 0, err
	}
	size := get32(head[:])
	if size == 0 || size > MaxFrame {
		return 0, 0, ErrFrameSize
	}
	r.rest = int(size) - 1
	return Type(head[4]), r.rest, nil
}

// Payload fills p with the next len(p) bytes of the current frame's payload.
func (r *Reader) Payload(p []byte) error {
	if len(p) > r.rest {
		return ErrPayload
	}
	n, err := io.ReadFull(r.src, p)
	r.rest -= n
	return unexpected(err)
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// headSize is a frame's size field and its type.
const headSize = 5
