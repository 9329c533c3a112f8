package syncer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

const uploadsFile = state.ReservedName + ".uploads"

// leaving is a store in which a Put of the state begins uploads that nothing ends, as if the process had been killed.
type leaving struct {
	storetest.Memory
	begins []objectstore.Upload
	refuse error // of aborts

	mu     sync.Mutex
	aborts []objectstore.Upload
}

func (s *leaving) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	if key == state.ReservedName {
		for _, u := range s.begins {
			objectstore.UploadsOf(ctx).Begun(u)
		}
	}
	return s.Memory.Put(ctx, key, c, cond)
}

func (s *leaving) AbortUpload(_ context.Context, u objectstore.Upload) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborts = append(s.aborts, u)
	return s.refuse
}

// leave returns a folder with uploads that a push has left.
func leave(t *testing.T, count int, options ...treetest.Option) (*treetest.Tree, *leaving) {
	t.Helper()
	a, s := treetest.New(t), &leaving{}
	a = a.Root()
	for i := range count {
		s.begins = append(s.begins, objectstore.Upload{Key: fmt.Sprint("k", i), ID: "id"})
	}
	a.Write("f", "1")
	a.Push(s, options...)
	s.begins = nil
	return a, s
}

// TestLeftUploadsAreAbortedOnce leaves more uploads than are kept, in the folder and beside it. Sync 10.
func TestLeftUploadsAreAbortedOnce(t *testing.T) {
	for name, options := range map[string][]treetest.Option{"in the folder": nil, "apart": {treetest.Apart}} {
		t.Run(name, func(t *testing.T) {
			a, s := leave(t, 300, options...)
			for range 2 {
				testkit.Equal(t, "notes", a.Push(s, options...).Notes, []string(nil))
				testkit.Equal(t, "aborts", len(s.aborts), 256)
			}
			a.WantExists(uploadsFile, false)
			a.WantExists("../root"+treetest.ApartSuffix+"/"+uploadsFile, false)
		})
	}
}

// TestRefusedAbortIsTriedAgain has a store that refuses to abort: a push succeeds, with a few requests for it. Sync 10.
func TestRefusedAbortIsTriedAgain(t *testing.T) {
	a, s := leave(t, 100)
	s.refuse = schemas.Errorf(schemas.CodePermissionDenied, "no")
	a.Write("f", "2")
	if r := a.Push(s); len(r.Notes) != 1 || len(s.aborts) > 8 {
		t.Errorf("notes = %q after %d aborts, want one after at most 8", r.Notes, len(s.aborts))
	}
	s.refuse, s.aborts = nil, nil
	a.Push(s)
	testkit.Equal(t, "aborts", len(s.aborts), 100)
	a.WantExists(uploadsFile, false)
}

// TestUploadsOfAnotherPlaceStay pushes to another place first: it has none of the uploads. Sync 10.
func TestUploadsOfAnotherPlaceStay(t *testing.T) {
	a, s := leave(t, 3)
	a.Push(s, func(c *syncer.Config) { c.Remote = "test://other" })
	testkit.Equal(t, "aborts at another place", len(s.aborts), 0)
	a.Push(s)
	testkit.Equal(t, "aborts", len(s.aborts), 3)
}

// TestForgedUploadsAreNotAborted changes what a push has left: nothing outside of the prefix is aborted, nor what a live push may have
// begun, and the push succeeds. Sync 10.
func TestForgedUploadsAreNotAborted(t *testing.T) {
	type forged = map[string]any
	upload := func(key, id string) forged { return forged{"remote": "test://store", "key": key, "id": id} }
	for name, forge := range map[string]func(f forged) any{
		"another machine": func(f forged) any { f["machine"] = "other"; return f },
		"no machine":      func(f forged) any { f["machine"] = ""; return f },
		"another disk":    func(f forged) any { f["device"] = 1 << 40; return f },
		"a copy":          func(f forged) any { f["folder"] = 1; return f },
		"keys": func(f forged) any {
			f["uploads"] = []forged{upload("../other/k", "i"), upload("/k", "i"), upload("a/../../k", "i"), upload("", "i"), upload(".", "i"),
				upload("a//b", "i"), upload("a\\..\\b", "i"), upload("a\nb", "i"), upload(strings.Repeat("k", 2000), "i")}
			return f
		},
		"ids": func(f forged) any {
			f["uploads"] = []forged{upload("k", ""), upload("k", strings.Repeat("i", 4000))}
			return f
		},
		"remotes": func(f forged) any { f["uploads"] = []forged{{"key": "k", "id": "i"}}; return f },
		"types":   func(f forged) any { f["uploads"] = "all"; return f },
		"long":    func(f forged) any { f["uploads"] = make([]forged, 1<<20); return f },
		"null":    func(forged) any { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			a, s := leave(t, 1)
			var f forged
			a.Must(json.Unmarshal([]byte(a.Read(uploadsFile)), &f))
			data, err := json.Marshal(forge(f))
			a.Must(err)
			a.Write(uploadsFile, string(data))
			testkit.Equal(t, "notes", a.Push(s).Notes, []string(nil))
			testkit.Equal(t, "aborts", len(s.aborts), 0)
		})
	}
	t.Run("writable by others", func(t *testing.T) {
		a, s := leave(t, 1)
		a.Chmod(uploadsFile, 0o666)
		a.Push(s)
		testkit.Equal(t, "aborts", len(s.aborts), 0)
	})
	t.Run("a real copy", func(t *testing.T) {
		a, s := leave(t, 1)
		copied := treetest.New(t).Root()
		a.Must(os.CopyFS(copied.Path("copy"), os.DirFS(a.Dir)))
		copied.Dir = copied.Path("copy")
		copied.Push(s)
		testkit.Equal(t, "aborts", len(s.aborts), 0)
	})
}
