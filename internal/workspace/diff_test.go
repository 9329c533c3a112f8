package workspace

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// maxReply is what a NATS server takes in a message by default.
const maxReply = 1 << 20

// A reply about hostile names, or hostile text, fits into a message.
func TestDiffFitsIntoAMessage(t *testing.T) {
	dir, sync := t.TempDir(), schemas.TemplateSync{Location: "file://" + t.TempDir() + "/{thread}"}
	diff := func(path string) *schemas.WorkspaceDiff {
		t.Helper()
		d, err := New(Config{}).Diff(testkit.Context(t), call(sync, dir), "", path)
		testkit.Must(t, err)
		body, err := json.Marshal(schemas.SessionReply{Diff: d})
		testkit.Must(t, err)
		if len(body) > maxReply-64<<10 {
			t.Errorf("the reply for %q has %d bytes", path, len(body))
		}
		return d
	}
	deep := filepath.Join(strings.Repeat("\x01", 250), strings.Repeat("\x02", 250))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, deep), 0o700))
	for i := range 1100 {
		write(t, dir, filepath.Join(deep, fmt.Sprint(i)), "")
	}
	all := diff("")
	testkit.Equal(t, "paths that differ", all.Count, int64(1102))
	if n := len(all.Changes); n < 200 || n >= schemas.MaxChanges {
		t.Errorf("%d of them are listed", n)
	}

	for name, want := range map[string]struct {
		text    string
		omitted schemas.DiffOmission
	}{
		"fits":  {strings.Repeat("\x01\n", maxDiffText/4), ""},
		"long":  {strings.Repeat("\x01\n", maxDiffText/2), schemas.DiffTooLarge},
		"large": {strings.Repeat("a", schemas.MaxDiffBytes+1), schemas.DiffTooLarge},
		"zero":  {"a\x00", schemas.DiffBinary},
		"bytes": {"\xff", schemas.DiffBinary},
	} {
		write(t, dir, name, "")
		push(t, sync, dir)
		write(t, dir, name, want.text)
		d := diff(name)
		testkit.Equal(t, "why "+name+" has no text", d.Omitted, want.omitted)
		testkit.Equal(t, name+" has a text", d.Text != "", want.omitted == "")
	}
}

// A link of the workspace leads nowhere: what is compared are its own files.
func TestDiffFollowsNoLink(t *testing.T) {
	dir, outside, sync := t.TempDir(), t.TempDir(), schemas.TemplateSync{Location: "file://" + t.TempDir() + "/{thread}"}
	write(t, outside, "secret", "secret")
	write(t, dir, "link", "own")
	push(t, sync, dir)
	testkit.Must(t, os.Remove(filepath.Join(dir, "link")))
	testkit.Must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")))
	d, err := New(Config{}).Diff(testkit.Context(t), call(sync, dir), "", "link")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	if d != nil {
		t.Errorf("diff of a link: %+v", d)
	}
}
