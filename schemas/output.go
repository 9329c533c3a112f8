package schemas

// ProcessRef names one run of a process.
type ProcessRef struct {
	// Tenant, Thread and Process are the ids in the run's subjects.
	Tenant, Thread, Process string
	// Epoch is the session's epoch under which the run was accepted. Only the worker that writes its output needs it.
	Epoch uint64
}

// Chunk is a piece of a process's output.
type Chunk struct {
	// Seq is the chunk's sequence in the stream LOG; it orders stdout against stderr.
	Seq uint64
	// Thread and Process are the ids of the process that printed it.
	Thread, Process string
	// Stream is stdout or stderr.
	Stream Stream
	// Offset is the number of bytes of its stream before it.
	Offset int64
	// Number counts the process's chunks from 1; 0 when unknown. A chunk stored again after a fault keeps its number.
	Number int64
	// Epoch is the epoch of the session that wrote it.
	Epoch uint64
	// Data is the output itself, valid until the callback that received it returns. It comes from inside a sandbox: hostile to
	// terminals and parsers.
	Data []byte
}

// End is the offset after the chunk's last byte.
func (c *Chunk) End() int64 { return c.Offset + int64(len(c.Data)) }
