package events

import (
	"math"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Headers of a chunk of output.
const (
	headerChunk  = "Sluice-Chunk"  // the chunk's number within the process, from 1
	headerOffset = "Sluice-Offset" // the bytes of its stream before it
	headerEpoch  = "Sluice-Epoch"  // the session's epoch that wrote it
)

// Chunk is a piece of a process's output as LOG keeps it.
type Chunk struct {
	// Seq is its place in the LOG stream: it orders stdout against stderr.
	Seq uint64
	// Process and Thread say whose output it is.
	Thread, Process string
	// Stream is stdout or stderr.
	Stream schemas.Stream
	// Offset is the number of bytes of its stream before it.
	Offset int64
	// number counts the process's chunks from 1, and epoch is the session's that wrote it: together they show a live reader
	// that it missed none. A chunk that was stored again after a fault has the number it had before.
	number int64
	epoch  uint64
	// Data is the output itself, valid until the callback it was given to returns. It comes from inside a sandbox:
	// hostile to terminals and parsers.
	Data []byte
}

// End is the offset after the chunk's last byte.
func (c *Chunk) End() int64 { return c.Offset + int64(len(c.Data)) }

// chunkOf reads a chunk from a message of LOG or its live copy.
func (s Subjects) chunkOf(seq uint64, subject string, header nats.Header, data []byte) (Chunk, bool) {
	tail, ok := strings.CutPrefix(subject, s.root+".")
	if !ok {
		return Chunk{}, false
	}
	t := strings.Split(tail, ".")
	if len(t) != 5 || (t[4] != string(schemas.Stdout) && t[4] != string(schemas.Stderr)) {
		return Chunk{}, false
	}
	offset, err := strconv.ParseInt(header.Get(headerOffset), 10, 64)
	if err != nil || offset < 0 || offset > math.MaxInt64-int64(len(data)) {
		return Chunk{}, false
	}
	k := Chunk{Seq: seq, Thread: t[2], Process: t[3], Stream: schemas.Stream(t[4]), Offset: offset, Data: data}
	k.number, _ = strconv.ParseInt(header.Get(headerChunk), 10, 64) // 0 follows on nothing: the reader then looks into LOG
	k.epoch = parseUint(header.Get(headerEpoch))
	return k, true
}
