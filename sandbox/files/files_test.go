package files

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	program "github.com/sluice-dev/sluice/sandbox/supervisor/files"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// FuzzEntries: whatever a process prints for records and an outcome, one entry fits into a message of NATS, and an error has a code that the
// program uses.
func FuzzEntries(f *testing.F) {
	f.Add([]byte("a/b\x00file\x00644\x0012\x001700000000000000000\x00\x00\x00\x00rest"))
	f.Add([]byte("l\x00symlink\x00777\x003\x00-1\x00\xff<>\x0012\x00text\x00"))
	f.Add([]byte("ok\x0012\x00-5\x00not_found\x00x: missing\x00\x00"))
	f.Add([]byte(strings.Repeat("\x01", 100_000) + strings.Repeat("\x00", program.RecordFields)))
	f.Fuzz(func(t *testing.T, output []byte) {
		const most = 4
		entries, rest := Entries(output, most)
		if len(entries) > most || len(entries) < most && strings.Count(string(rest), "\x00") >= program.RecordFields {
			t.Errorf("%d entries, and %d bytes are left", len(entries), len(rest))
		}
		for _, e := range entries {
			line, err := json.Marshal(e)
			if err != nil || len(line) > 512<<10 {
				t.Errorf("an entry has %d bytes, error %v", len(line), err)
			}
		}
		files, size, err := Outcome(output, sandbox.Exit{})
		e, ok := errors.AsType[*schemas.Error](err)
		switch {
		case err == nil && (files < 0 || size < 0):
			t.Errorf("%d files and %d bytes", files, size)
		case err != nil && (!ok || !slices.Contains(append(codes(), schemas.CodeUnavailable), e.Code) || len(e.Message) > maxText+100):
			t.Errorf("error %.200v", err)
		}
	})
}
