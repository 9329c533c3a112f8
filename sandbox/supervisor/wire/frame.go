package wire

import (
	"bufio"
	"io"
)

// Version is the protocol's version. Both ends say theirs in Hello and part where they differ.
const Version = 2

const (
	// MaxFrame is the most bytes a frame may have after its size field: 8 MiB, above what Linux takes as the arguments and
	// the environment of one program under its default stack limit (2 MiB), so that the system's own limit decides.
	MaxFrame = 8 << 20
	// MaxOutput is the most bytes of output in one frame: 256 KiB, from where on larger reads measure no faster.
	MaxOutput = 256 << 10
	// Window is how many bytes of a stream the supervisor sends beyond the last acked one: 4 MiB.
	Window = 4 << 20
	// Tail is how many bytes of a stream may come beyond the window once the process has ended: what its pipe (1 MiB)
	// still held, so that the end of a process never waits for an ack.
	Tail = 2 << 20
	// StdinWindow is how many bytes of standard input the host may send beyond what the supervisor said it took: 256 KiB.
	StdinWindow = 256 << 10
	// MaxStdin is the most bytes of standard input in one frame: 64 KiB, a pipe's usual size.
	MaxStdin = 64 << 10
)

// Type is what a frame is; it is its first byte after the size.
type Type byte

// The frames a host sends.
const (
	TypeHello     Type = 1  // Hello: the first frame in either direction
	TypeSpawn     Type = 2  // Spawn: start a process
	TypeAck       Type = 3  // Ack: output up to this offset is kept safe elsewhere
	TypeStdin     Type = 4  // Stdin: bytes for the standard input
	TypeStdinEOF  Type = 5  // Handle: end of the standard input
	TypeSignal    Type = 6  // Signal: a signal for the process group
	TypeKill      Type = 7  // Kill: end the tree
	TypeList      Type = 8  // no payload: ask for Listed
	TypeResume    Type = 9  // Resume: take a process over from an earlier connection
	TypeRelease   Type = 10 // Handle: the exit record is kept safe elsewhere, forget the process
	TypeTerminate Type = 11 // Terminate: end everything, then the supervisor
)

// The frames a supervisor sends.
const (
	TypeSpawned    Type = 65 // Spawned: the process runs
	TypeFailed     Type = 66 // Failed: it could not be started
	TypeOutput     Type = 67 // Output: a piece of output
	TypeStdinTaken Type = 68 // StdinTaken: how much of the standard input has been taken
	TypeSignaled   Type = 69 // Signaled: the answer to Signal
	TypeExit       Type = 70 // Exit: the exit record, after the last Output
	TypeListed     Type = 71 // Listed: the answer to List
)

// Error is a fault in what the other end sent.
type Error string

// Error is the text.
func (e Error) Error() string { return string(e) }

// The faults. A connection on which one is met is closed: nothing after it can be trusted.
const (
	ErrFrameSize Error = "wire: frame is empty or larger than the protocol allows"
	ErrPayload   Error = "wire: frame does not hold what its type says"
	ErrVersion   Error = "wire: the other end speaks another version of the protocol"
	ErrOrder     Error = "wire: frame that may not come here"
)

// Reader takes frames off a stream. Each Next is followed by at most one Payload of at least the whole size.
type Reader struct {
	src  *bufio.Reader
	rest int
}

// readAhead is kept small: what bufio has read ahead is copied once more, and a large output frame should not be.
const readAhead = 4 << 10

// NewReader reads frames from src.
func NewReader(src io.Reader) *Reader { return &Reader{src: bufio.NewReaderSize(src, readAhead)} }

// Next reads the head of the next frame, and gives its type and its payload's size in bytes. What the caller left of
// the payload before is skipped. io.EOF comes only between two frames.
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
	size := u32(head[:])
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
