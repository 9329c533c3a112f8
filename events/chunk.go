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

// chunkOf reads a chunk from a message of LOG or its live copy.
func (s Subjects) chunkOf(seq uint64, subject string, header nats.Header, data []byte) (schemas.Chunk, bool) {
	tail, ok := strings.CutPrefix(subject, s.root+".")
	if !ok {
		return schemas.Chunk{}, false
	}
	t := strings.Split(tail, ".")
	if len(t) != 5 || (t[4] != string(schemas.Stdout) && t[4] != string(schemas.Stderr)) {
		return schemas.Chunk{}, false
	}
	offset, err := strconv.ParseInt(header.Get(headerOffset), 10, 64)
	if err != nil || offset < 0 || offset > math.MaxInt64-int64(len(data)) {
		return schemas.Chunk{}, false
	}
	k := schemas.Chunk{Seq: seq, Thread: t[2], Process: t[3], Stream: schemas.Stream(t[4]), Offset: offset, Data: data}
	k.Number, _ = strconv.ParseInt(header.Get(headerChunk), 10, 64) // 0 follows on nothing: the reader then looks into LOG
	k.Epoch = parseUint(header.Get(headerEpoch))
	return k, true
}
