package events

import (
	"strconv"

	"github.com/sluice-dev/sluice/schemas"
)

// StreamSubjects builds the subjects of the streams of one cell, for all tenants: what they store, and what selects a part of it.
type StreamSubjects struct{ cell Subjects }

// Streams returns the subjects of the cell's streams.
func (s Subjects) Streams() StreamSubjects { return StreamSubjects{s} }

// Commands is the subject of the stream CMD.
func (s StreamSubjects) Commands() string { return s.cell.join("*", "cmd", "*", "*") }

// partitionTransform is the subject under which CMD stores a command: the partition comes first, so a consumer can filter by it.
func (s StreamSubjects) partitionTransform(partitions int) string {
	n := strconv.Itoa(partitions)
	return s.cell.root + ".cmdp.{{partition(" + n + ",1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
}

// PartitionCommands is the filter of the consumer of one partition.
func (s StreamSubjects) PartitionCommands(partition int) string {
	return s.cell.root + ".cmdp." + strconv.Itoa(partition) + ".>"
}

// PartitionCancels selects the cancels in one partition of CMD.
func (s StreamSubjects) PartitionCancels(partition int) string {
	return s.cell.root + ".cmdp." + strconv.Itoa(partition) + ".*.*." + string(schemas.OpCancel)
}

// Events is the subject of the stream EVT.
func (s StreamSubjects) Events() string { return s.cell.join("*", "evt", ">") }

// Records selects every process record in EVT.
func (s StreamSubjects) Records() string { return s.cell.join("*", "evt", "*", "*", "process", "*") }

// Logs is the subject of the stream LOG.
func (s StreamSubjects) Logs() string { return s.cell.join("*", "log", ">") }

// Messages is the subject of the stream MSG.
func (s StreamSubjects) Messages() string { return s.cell.join("*", "msg", ">") }

// DeadLetters is the subject of the stream DLQ.
func (s StreamSubjects) DeadLetters() string { return s.cell.join("*", "dlq", "*") }

// republish returns the source and destination of a stream's RePublish: the same tokens on another plane.
func (s StreamSubjects) republish(from, to string) (source, destination string) {
	return s.cell.join("*", from, ">"), s.cell.root + ".{{wildcard(1)}}." + to + ".>"
}
