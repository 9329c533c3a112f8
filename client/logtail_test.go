package client

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: the last lines are counted over both streams; a line may come in several chunks, with the other stream's between.
func TestTailCountsTheLinesOfBothStreams(t *testing.T) {
	chunks := []schemas.Chunk{
		{Seq: 3, Stream: schemas.Stdout, Data: []byte("a\nb\nhal")},
		{Seq: 5, Stream: schemas.Stderr, Data: []byte("e\n")},
		{Seq: 6, Stream: schemas.Stdout, Offset: 7, Data: []byte("f\nlast")},
	}
	for n, want := range map[int]LogQuery{
		1: {From: 6, StdoutFrom: 9, StderrFrom: 2},
		2: {From: 5, StdoutFrom: 9, StderrFrom: 0},
		3: {From: 3, StdoutFrom: 4, StderrFrom: 0},
		5: {From: 3},
		9: {From: 3},
	} {
		tail := newTail(n)
		for _, k := range chunks {
			testkit.Must(t, tail.add(k))
		}
		got := tail.query(LogQuery{})
		testkit.Equal(t, "query", [3]int64{int64(got.From), got.StdoutFrom, got.StderrFrom}, [3]int64{int64(want.From), want.StdoutFrom, want.StderrFrom})
	}
	empty := newTail(1).query(LogQuery{From: 2, StdoutFrom: 5})
	testkit.Equal(t, "first sequence without output", empty.From, uint64(2))
}

// Ten minutes 15: after a second run of the process, the last lines leave out nothing of it, whatever the first run printed.
func TestTailKnowsTheSecondRun(t *testing.T) {
	tail := newTail(1)
	for _, k := range []schemas.Chunk{
		{Seq: 3, Epoch: 1, Stream: schemas.Stderr, Data: []byte("a long line\n")},
		{Seq: 4, Epoch: 2, Stream: schemas.Stdout, Data: []byte("a\nb\n")},
	} {
		testkit.Must(t, tail.add(k))
	}
	got := tail.query(LogQuery{})
	testkit.Equal(t, "query", [3]int64{int64(got.From), got.StdoutFrom, got.StderrFrom}, [3]int64{4, 2, 0})
}

// A reader that says where it is in one stream says so of both: what is missing before the first byte of the other is reported.
func TestGapAtTheBeginningOfAStreamIsReported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query LogQuery
		want  int
	}{{LogQuery{From: 5}, 0}, {LogQuery{From: 5, StdoutFrom: 3}, 1}, {LogQuery{}, 1}} {
		got := 0
		c.query.Gap = func(schemas.LogGap) error { got++; return nil }
		testkit.Must(t, newGaps(c.query).report(missing(schemas.Stderr, 0, 4)))
		testkit.Equal(t, "gaps", got, c.want)
	}
}
