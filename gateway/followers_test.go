package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
)

// Readers that share a log, join in its middle, and stop for a while: each gets every byte, with the characters that chunks share.
func TestManyReadersOfOneLogGetEveryByte(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Pause = time.Hour }) // none is cut off
	const readers, lines = 5, 12_000
	id := w.begin(fmt.Sprintf(`echo begin; while [ ! -e go ]; do sleep 0.05; done; seq -f 'ä%%.0fü' 1 %d`, lines))
	path := "/api/process/" + id + "/stream"
	var want strings.Builder
	want.WriteString("begin\n")
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&want, "ä%dü\n", i)
	}
	var early []*eventStream
	for range readers {
		s := w.stream("GET", path, "", "")
		s.until("stdout")
		early = append(early, s)
	}
	_, err := w.Files("default").WriteFile(w.ctx, "go", nil)
	testkit.Must(t, err)
	stopped := early[0] // it reads once the others have ended
	got := make([][]*sent, 2*readers)
	var all sync.WaitGroup
	for i, s := range early[1:] {
		all.Go(func() { got[i] = s.until("exit") })
	}
	for i := range readers { // these come while it prints, or after
		s := w.stream("GET", path, "", "")
		all.Go(func() { got[readers+i] = s.until("exit") })
	}
	all.Wait()
	got[readers-1] = stopped.until("exit")
	for i, events := range got {
		text := data(events, "stdout")
		if i < readers {
			text = "begin\n" + text
		}
		if text != want.String() {
			t.Errorf("reader %d got %d bytes, want %d, or others", i, len(text), want.Len())
		}
	}
	// Every id is a place to go on from, of shared events too.
	events := got[0]
	for _, i := range []int{0, len(events) / 2, len(events) - 2} {
		rest := w.stream("GET", path, "", events[i].id).until("exit")
		testkit.Equal(t, "output", "begin\n"+data(events[:i+1], "stdout")+data(rest, "stdout") == want.String(), true)
	}
}
