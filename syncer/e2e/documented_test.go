package e2e

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// otherTool is a program that knows the documented format alone: an object for each file, and a state of documented fields.
type otherTool struct {
	*testing.T
	store objectstore.Store
}

type documentedState struct {
	Version      string           `json:"version"`
	LastSyncedAt int64            `json:"last_synced_at"`
	Files        []documentedFile `json:"files"`
}

type documentedFile struct {
	Path       string `json:"path"`
	Checksum   string `json:"checksum"`
	Size       int64  `json:"size"`
	ModifiedAt int64  `json:"modified_at"`
}

func (o otherTool) put(key, data string) {
	o.Helper()
	_, err := o.store.Put(o.Context(), key, objectstore.Bytes([]byte(data)), objectstore.Condition{})
	testkit.Must(o, err)
}

func (o otherTool) get(key string) string {
	o.Helper()
	data, _, err := o.store.Get(o.Context(), key, objectstore.Range{}, nil)
	testkit.Must(o, err)
	return string(data)
}

// write replaces the workspace. It does not list folders, and ignores what it does not know of the state before.
func (o otherTool) write(files map[string]string) {
	o.Helper()
	s := documentedState{Version: "1.0", LastSyncedAt: 1704067200}
	for path, data := range files {
		o.put(path, data)
		sum := md5.Sum([]byte(data))
		s.Files = append(s.Files, documentedFile{path, hex.EncodeToString(sum[:]), int64(len(data)), 1704067100})
	}
	data, err := json.MarshalIndent(s, "", "  ")
	testkit.Must(o, err)
	o.put(state.ReservedName, string(data))
}

// read returns the workspace. It ends the test where the state is not as documented, or an object is not as the state has it.
func (o otherTool) read() map[string]string {
	o.Helper()
	var s documentedState
	testkit.Must(o, json.Unmarshal([]byte(o.get(state.ReservedName)), &s))
	testkit.Equal(o, "version", s.Version, "1.0")
	files := map[string]string{}
	for _, f := range s.Files {
		data := o.get(f.Path)
		sum := md5.Sum([]byte(data))
		testkit.Equal(o, f.Path, documentedFile{f.Path, hex.EncodeToString(sum[:]), int64(len(data)), f.ModifiedAt}, f)
		files[f.Path] = data
	}
	return files
}

// TestDocumentedStateIsShared has another tool and Sluice change one workspace in turn. Ten minutes 3.
func TestDocumentedStateIsShared(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) objectstore.Store{
		"s3":     func(t *testing.T) objectstore.Store { return open(t, t.Name()) },
		"memory": func(*testing.T) objectstore.Store { return &storetest.Memory{} },
	} {
		t.Run(name, func(t *testing.T) {
			other, w := otherTool{t, open(t)}, treetest.New(t)
			large := strings.Repeat("0123456789abcdef", 600_000) // over a chunk
			other.write(map[string]string{"README": "hello", "src/main.py": "print()", "src/a/b/c.py": "", "data/large": large})
			testkit.Equal(t, "downloaded", w.Pull(other.store).Downloaded, 4)
			testkit.Equal(t, "pulled again", w.Pull(other.store).Changed, false)
			w.Want("src/a/b/c.py", "")
			w.Want("data/large", large)

			w.Write("src/main.py", "print(1)")
			w.Write("new/of/sluice", "1")
			w.Remove("README")
			w.Push(other.store)
			now := other.read()
			want := map[string]string{"src/main.py": "print(1)", "src/a/b/c.py": "", "data/large": large, "new/of/sluice": "1"}
			testkit.Equal(t, "files", now, want)

			delete(now, "new/of/sluice")
			now["src/main.py"], now["new/of/other"] = "print(2)", "2"
			other.write(now)
			w.Pull(other.store)
			w.Want("src/main.py", "print(2)")
			w.Want("new/of/other", "2")
			w.WantExists("new/of/sluice", false)
			treetest.Same(t, w, pulled(t, other.store))
		})
	}
}

// TestStateOfEarlierVersionIsPulled pulls and pushes a workspace of which a version of Sluice before has stored the state, with
// times as strings. Ten minutes 3.
func TestStateOfEarlierVersionIsPulled(t *testing.T) {
	other := otherTool{t, open(t, t.Name())}
	other.put("src/main.py", "print()")
	sum := md5.Sum([]byte("print()"))
	other.put(state.ReservedName, `{"version":"1.0","last_synced_at":"2024-01-01T00:00:00.5Z","files":[{"path":"src/main.py","checksum":"`+
		hex.EncodeToString(sum[:])+`","size":7,"modified_at":"2023-12-31T23:58:20.25Z"}],"sluice":{"format":1,"layout":"plain"}}`)
	w := pulled(t, other.store)
	w.Want("src/main.py", "print()")
	w.Write("f", "x")
	w.Push(other.store, func(c *syncer.Config) { c.Layout = state.Plain })
	testkit.Equal(t, "files", other.read(), map[string]string{"src/main.py": "print()", "f": "x"})
}

func pulled(t *testing.T, store objectstore.Store) *treetest.Tree {
	t.Helper()
	w := treetest.New(t)
	w.Pull(store)
	return w
}
