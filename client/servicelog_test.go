package client

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Processes 4: the log of a service has the last lines of both streams, each with its time, and bytes that are no UTF-8 replaced.
func TestLineLog(t *testing.T) {
	l := newLineLog(3)
	at := time.Date(2026, 1, 2, 15, 4, 5, 6e6, time.UTC)
	for i, k := range []struct {
		stream schemas.Stream
		data   string
	}{
		{schemas.Stdout, "gone\none"}, {schemas.Stderr, "err\xff\r\n"}, {schemas.Stdout, " more\n"}, {schemas.Stdout, "\nopen"},
	} {
		testkit.Must(t, l.add(schemas.Chunk{Stream: k.stream, Data: []byte(k.data), Time: at.Add(time.Duration(i) * time.Second)}))
	}
	testkit.Equal(t, "lines", l.all(), []string{
		"2026-01-02T15:04:05.006Z | one more", "2026-01-02T15:04:08.006Z | ", "2026-01-02T15:04:08.006Z | open",
	})
	l = newLineLog(MaxServiceLines)
	testkit.Must(t, l.add(schemas.Chunk{Stream: schemas.Stdout, Data: []byte(strings.Repeat("x", 2*maxLine) + "\n")}))
	for i := range 5000 {
		testkit.Must(t, l.add(schemas.Chunk{Stream: schemas.Stdout, Data: fmt.Appendln(nil, i)}))
	}
	testkit.Equal(t, "number of lines", len(l.all()), MaxServiceLines)
}
