package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
)

// Promises 9: standard input goes on where it was when the worker is killed and comes back: no byte is lost and none comes twice.
func TestStdinGoesOnAfterTheWorkerIsKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "w1")
	in, feed := io.Pipe()
	x, err := f.client.ExecStream(f.ctx, client.Request{Thread: "t", Command: "cat", Stdin: in})
	f.must(err)
	defer x.Close()
	next, killed := make(chan struct{}, 1), make(chan struct{})
	var want strings.Builder
	go func() {
		defer func() { _ = feed.Close() }() // it returns no error
		for i := range 1000 {
			line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", i%700))
			want.WriteString(line)
			if _, err := io.WriteString(feed, line); err != nil {
				return
			}
			if i == 200 {
				close(next)
			}
			if i == 600 {
				<-killed // the end comes from the worker that is back
			}
		}
	}()
	go func() {
		<-next
		f.workers["w1"].kill()
		f.start("w1")
		close(killed)
	}()
	var got strings.Builder
	for e, err := range x.Events(f.ctx) {
		f.must(err)
		if e.Chunk != nil {
			got.Write(e.Chunk.Data)
		} else if e.Result != nil {
			testkit.Equal(t, "exit code", e.Result.ExitCode, 0)
		}
	}
	testkit.Equal(t, "output", got.String() == want.String(), true)
	testkit.Equal(t, "bytes of output", got.Len(), want.Len())
}
