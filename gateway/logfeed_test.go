package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// newFeed is a feed that follows nothing: the test adds its chunks.
func newFeed(readers ...*feedReader) *logFeed {
	f := &logFeed{events: newOutput("t", "p", place{}), at: make(map[*feedReader]uint64), grown: make(chan struct{}), from: 1}
	for _, r := range readers {
		r.feed = f
		f.admit(r, 1)
	}
	return f
}

// print adds a chunk of stdout with this sequence.
func (f *logFeed) print(t *testing.T, seq uint64, offset int64, text string) {
	t.Helper()
	testkit.Must(t, f.add(schemas.Chunk{Seq: seq, Stream: schemas.Stdout, Offset: offset, Data: []byte(text)}))
}

func TestFeedGivesEachReaderEveryChunk(t *testing.T) {
	var a, b feedReader
	f := newFeed(&a, &b)
	f.print(t, 3, 0, "one ")
	f.print(t, 7, 4, "two")
	f.end(nil)
	for _, r := range []*feedReader{&a, &b} {
		for _, want := range []string{"one ", "two"} {
			item, err := r.next(t.Context())
			testkit.Must(t, err)
			testkit.Equal(t, "chunk", string(item.chunk.Data), want)
			testkit.Contains(t, "event", string(item.event), want)
		}
		if _, err := r.next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("error at the end = %v, want io.EOF", err)
		}
	}
}

// Where a feed begins is the word of the client that began it: a reader that lacks what it skips does not join it.
func TestReaderThatLacksWhatAFeedSkipsDoesNotJoin(t *testing.T) {
	key := feedKey{"default", "t", "p"}
	f := newFeed()
	f.begun, f.from = [2]int64{0, 500}, 0
	fs := &logFeeds{open: map[feedKey]*logFeed{key: f}}
	l := &logReader{output: newOutput("t", "p", place{})}
	if _, err := fs.join(t.Context(), nil, key, l, false); !errors.Is(err, errBehind) {
		t.Errorf("error of a reader from the beginning = %v, want errBehind", err)
	}
	l.at[1].end = 500
	_, err := fs.join(t.Context(), nil, key, l, false)
	testkit.Must(t, err)
}

func TestFeedEndsWithItsError(t *testing.T) {
	var r feedReader
	f := newFeed(&r)
	f.end(schemas.Errorf(schemas.CodeUnavailable, "no server"))
	if _, err := r.next(t.Context()); !errors.Is(err, schemas.ErrUnavailable) {
		t.Errorf("error = %v, want unavailable", err)
	}
}

// A reader that stops holds up neither the feed nor the others, and holds no more memory than the bound.
func TestFeedIsBounded(t *testing.T) {
	var fast, slow feedReader
	f := newFeed(&fast, &slow)
	text := strings.Repeat("x", 10_000)
	for i := range uint64(400) {
		f.print(t, i+1, int64(i)*10_000, text)
		if f.bytes > feedMost {
			t.Fatalf("%d bytes wait, want at most %d", f.bytes, feedMost)
		}
		item, err := fast.next(t.Context())
		testkit.Must(t, err)
		testkit.Equal(t, "sequence", item.chunk.Seq, i+1)
	}
	if _, err := slow.next(t.Context()); !errors.Is(err, errBehind) {
		t.Errorf("error of the slow reader = %v, want errBehind", err)
	}
	var late feedReader
	late.feed = f
	if f.admit(&late, f.from-1) {
		t.Error("a reader was admitted that needs what was dropped")
	}
	if !f.admit(&late, f.from) {
		t.Error("a reader was refused that needs what is there")
	}
	delete(f.at, &slow)
	delete(f.at, &late)
	f.print(t, 401, 4_000_000, text)
	if f.bytes > feedKeep+3*len(text) {
		t.Errorf("%d bytes wait that no reader needs", f.bytes)
	}
}

func TestFeedReaderLeavesWithItsContext(t *testing.T) {
	var r feedReader
	newFeed(&r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want canceled", err)
	}
}

// What a reader has already is not sent again, in whatever pieces the feed has it, and a second run comes whole.
func TestReaderTakesWhatItLacks(t *testing.T) {
	var got strings.Builder
	l := &logReader{output: newOutput("t", "p", place{stdout: 3}), at: [2]readStream{{end: 3}}, send: func(e streamEvent) error {
		if d, ok := e.data.(logEvent); ok && d.Gap != nil {
			fmt.Fprintf(&got, "[gap %d-%d]", d.Gap.From, d.Gap.To)
		} else if ok {
			got.WriteString(d.Data)
		} else {
			got.WriteString("(shared)")
		}
		return nil
	}}
	chunk := func(seq uint64, offset int64, epoch uint64, text string) schemas.Chunk {
		return schemas.Chunk{Seq: seq, Stream: schemas.Stdout, Offset: offset, Epoch: epoch, Data: []byte(text)}
	}
	gap := []schemas.LogGap{{Stream: schemas.Stdout, From: 6, To: 8}}
	for _, item := range []feedItem{
		{chunk: chunk(5, 0, 1, "abc")},
		{chunk: chunk(6, 2, 1, "cdef")},
		{chunk: chunk(7, 8, 1, "i"), gaps: gap},
		{chunk: chunk(8, 8, 1, "i"), gaps: gap},
		{chunk: chunk(9, 9, 1, "j"), before: [2]outputStream{{from: 9}, {}}, after: [2]outputStream{{from: 10}, {}}, event: []byte("j")},
		{chunk: chunk(10, 0, 2, "again")},
	} {
		testkit.Must(t, l.take(&item))
	}
	testkit.Equal(t, "output", got.String(), "def[gap 6-8]i(shared)again")
	testkit.Equal(t, "next", l.next, uint64(11))
}

// A feed may drop its first chunks before its first reader takes one: the reader then has nothing, and loses nothing.
func TestReaderCatchesUpUntilNothingIsStored(t *testing.T) {
	for what, tt := range map[string]struct {
		follow []error // nil ends the log
		stored []bool
		want   error
	}{
		"a feed that has all":              {[]error{nil}, nil, nil},
		"the first reader":                 {[]error{errBehind, nil}, []bool{false}, nil},
		"a feed that dropped its first":    {[]error{errBehind, errBehind, nil}, []bool{false, true}, nil},
		"a slow reader":                    {[]error{errBehind, errBehind, errBehind, nil}, []bool{true, true, true}, nil},
		"a feed with more than was stored": {[]error{errBehind, errBehind}, []bool{true, false}, errBehind},
	} {
		follow := func(bool) error {
			next := tt.follow[0]
			tt.follow = tt.follow[1:]
			return next
		}
		catchUp := func() (bool, error) {
			next := tt.stored[0]
			tt.stored = tt.stored[1:]
			return next, nil
		}
		if err := readOn(follow, catchUp); !errors.Is(err, tt.want) || len(tt.follow)+len(tt.stored) > 0 {
			t.Errorf("%s: error = %v, want %v, after every step", what, err, tt.want)
		}
	}
}
