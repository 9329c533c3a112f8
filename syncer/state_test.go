package syncer_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

func hostileFile(path string) string {
	return fmt.Sprintf(`{"path":%s,"checksum":"d41d8cd98f00b204e9800998ecf8427e","size":0,"modified_at":"2026-01-02T03:04:05Z"}`, path)
}

func stateOf(files string, more string) string {
	return `{"version":"1.0","last_synced_at":"2026-01-02T03:04:05Z","files":[` + files + `]` + more + `}`
}

// hostile are states that somebody might make who wants to write elsewhere, or to wear this machine out.
func hostile() map[string]string {
	all := map[string]string{
		"version":  `{"version":"2.0","files":[]}`,
		"checksum": stateOf(strings.Replace(hostileFile(`"f"`), "d41d", "zz1d", 1), ""),
		"short":    stateOf(strings.Replace(hostileFile(`"f"`), "d41d", "", 1), ""),
		"negative": stateOf(strings.Replace(hostileFile(`"f"`), `"size":0`, `"size":-1`, 1), ""),
		"huge":     stateOf(strings.Replace(hostileFile(`"f"`), `"size":0`, `"size":9000000000000000000`, 1), ""),
		"too big":  stateOf(strings.Replace(hostileFile(`"f"`), `"size":0`, `"size":99999999999999999999999`, 1), ""),
		"twice":    stateOf(hostileFile(`"f"`)+","+hostileFile(`"f"`), ""),
		"under":    stateOf(hostileFile(`"f"`)+","+hostileFile(`"f/g"`), ""),
		"base64":   stateOf(strings.Replace(hostileFile(`"f"`), `"size"`, `"path_base64":"Li4vZXNjYXBlZA==","size"`, 1), ""),
		"through a symlink": stateOf(hostileFile(`"l/escaped"`),
			`,"sluice":{"format":1,"layout":"plain","symlinks":[{"path":"l","target":".."}]}`),
		"mode":     stateOf("", `,"sluice":{"format":1,"layout":"plain","folders":[{"path":"d","mode":"07777"}]}`),
		"format":   stateOf("", `,"sluice":{"format":9,"layout":"packed"}`),
		"location": stateOf("", `,"sluice":{"format":1,"layout":"packed","objects":[{"sha256":"00","size":1}]}`),
		"many":     stateOf(strings.TrimSuffix(strings.Repeat(hostileFile(`"f"`)+",", 1001), ","), ""),
	}
	zeros := strings.Repeat("0", 64)
	object := `,"sluice":{"format":1,"layout":"packed","objects":[{"sha256":"` + zeros + `","size":10,"generation":0}]}`
	for name, at := range map[string]string{"beyond": `[0,8]`, "before": `[0,-1]`, "no object": `[7,0]`, "odd": `[1]`} {
		all["location "+name] = stateOf(strings.Replace(hostileFile(`"f"`), `"size":0`,
			`"digest":"`+strings.Repeat("1", 64)+`","size":5,"at":`+at, 1), object)
	}
	for name, path := range map[string]string{
		"absolute": `"/tmp/escaped"`, "up": `"../escaped"`, "up inside": `"a/../../escaped"`, "NUL": `"a\u0000b"`,
		"empty": `""`, "empty segment": `"a//b"`, "dot": `"./a"`, "own": `".sandbox-state.index"`, "trailing": `"a/"`,
		"long": `"` + strings.Repeat("n", 300) + `"`,
	} {
		all["path "+name] = stateOf(hostileFile(path), "")
	}
	return all
}

func TestHostileStatesAreRefused(t *testing.T) {
	for name, state := range hostile() {
		t.Run(name, func(t *testing.T) {
			up := newTree(t)
			up.mkdir("root")
			root := &tree{t, up.path("root")}
			root.write("mine", "x")
			store := newStore()
			_, err := store.Put(t.Context(), syncer.ReservedName,
				syncer.Content{Reader: strings.NewReader(state), Size: int64(len(state))}, syncer.Condition{})
			root.must(err)
			for _, op := range []func() (*syncer.Report, error){
				func() (*syncer.Report, error) { return root.limited(store).Pull(t.Context()) },
				func() (*syncer.Report, error) { return root.limited(store).Push(t.Context()) },
			} {
				_, err = op()
				if c := schemas.CodeOf(err); c != schemas.CodeInvalidArgument && c != schemas.CodeTooLarge {
					t.Errorf("%v", err)
				}
				if err != nil && len(err.Error()) > 1000 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
			}
			if got := up.listing(); len(got) != 2 {
				t.Errorf("something was written: %q", got)
			}
		})
	}
}

func (w *tree) limited(store syncer.Store) *syncer.Syncer {
	return w.syncer(store, func(c *syncer.Config) { c.Limits.Entries = 1000 })
}

// TestASymlinkPutThereMeanwhile has the path of a file become a symlink out of the root while a pull is on its way.
func TestASymlinkPutThereMeanwhile(t *testing.T) {
	outside, a, b, store := newTree(t), newTree(t), newTree(t), newStore()
	a.write("d/f", "1")
	a.push(store)
	b.pull(store)
	a.write("d/f", "22")
	a.write("d/g", "new")
	a.push(store)
	swapped := false
	_, err := b.syncer(store, func(c *syncer.Config) {
		c.Progress = func(p syncer.Progress) {
			if p.Phase == "download" && !swapped {
				swapped = true
				b.rename("d", "moved")
				b.link(outside.dir, "d")
			}
		}
	}).Pull(t.Context())
	if err == nil {
		t.Error("nobody has noticed")
	}
	if got := outside.listing(); len(got) > 0 {
		t.Errorf("written outside: %q", got)
	}
}

func TestAFileThatChangesWhileAPullRunsIsKept(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("f", "1")
	a.push(store)
	b.pull(store)
	a.write("f", "22")
	a.write("new", "from a")
	a.push(store)
	done := false
	_, err := b.syncer(store, func(c *syncer.Config) {
		c.Progress = func(p syncer.Progress) {
			if p.Phase == "download" && !done {
				done = true
				b.write("f", "mine")
				b.write("new", "mine too")
			}
		}
	}).Pull(t.Context())
	if !errors.Is(err, schemas.ErrConflict) || b.read("f") != "mine" || b.read("new") != "mine too" {
		t.Errorf("%v: %q %q", err, b.read("f"), b.read("new"))
	}
}

func TestDamagedContentIsNotPublished(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		a, b, store := newTree(t), newTree(t), newStore()
		a.write("f", "the content")
		a.push(store, o)
		for info, err := range store.List(t.Context(), "") {
			a.must(err)
			if info.Key == syncer.ReservedName {
				continue
			}
			data, _, err := store.Get(t.Context(), info.Key, syncer.Range{}, nil)
			a.must(err)
			data[0] ^= 1
			_, err = store.Put(t.Context(), info.Key, syncer.Content{Reader: bytes.NewReader(data), Size: info.Size}, syncer.Condition{})
			a.must(err)
		}
		if _, err := b.syncer(store).Pull(t.Context()); err == nil || b.exists("f") {
			t.Error("it was taken")
		}
		if l := b.leftovers(); len(l) > 0 {
			t.Errorf("left behind: %q", l)
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	for _, s := range hostile() {
		f.Add([]byte(s))
	}
	w := newTree(f)
	w.write("a/b", "x")
	store := newStore()
	w.push(store)
	data, _, err := store.Get(f.Context(), syncer.ReservedName, syncer.Range{}, nil)
	w.must(err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := syncer.DecodeState(data, syncer.Limits{Entries: 1000, StateBytes: 1 << 20, FileBytes: 1 << 20, TotalBytes: 1 << 21})
		if err != nil {
			return
		}
		for _, n := range s.Nodes {
			if !filepath.IsLocal(n.Path) || filepath.Clean(n.Path) != n.Path {
				t.Fatalf("%q was taken", n.Path)
			}
		}
		if _, err := syncer.DecodeState(s.Encode(), syncer.Limits{}); err != nil {
			t.Fatalf("what was decoded and encoded is refused: %v\n%s", err, s.Encode())
		}
		// A pull of it, against a store that has nothing else, stays in its root.
		up := newTree(t)
		up.mkdir("root")
		store := newStore()
		_, err = store.Put(t.Context(), syncer.ReservedName, syncer.Content{Reader: bytes.NewReader(data), Size: int64(len(data))}, syncer.Condition{})
		up.must(err)
		_, _ = (&tree{t, up.path("root")}).limited(store).Pull(t.Context())
		entries, err := os.ReadDir(up.dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("outside the root: %v, %v", entries, err)
		}
	})
}

// TestPendingIsCheckedToo has hostile lists of what a push of the plain layout still has to do.
func TestPendingIsCheckedToo(t *testing.T) {
	for name, more := range map[string]string{
		"no such file":  `"pending":[{"path":"g","over":""}]`,
		"nowhere":       `"pending":[{"path":"big","over":""}]`,
		"twice":         `"pending":[{"path":"f","over":""},{"path":"f","over":"x"}]`,
		"drop outside":  `"dropping":[{"path":"../g"}]`,
		"drop the own":  `"dropping":[{"path":".sandbox-state"}]`,
		"drop absolute": `"dropping":[{"path":"","path_base64":"L2V0Yw=="}]`,
		"drop a file":   `"dropping":[{"path":"f"}]`,
		"push":          `"objects":[{"sha256":"` + strings.Repeat("0", 64) + `","size":10,"push":"../../x"}]`,
	} {
		files := hostileFile(`"f"`) + "," + strings.Replace(hostileFile(`"big"`), `"size":0`, `"size":5`, 1)
		if _, err := syncer.DecodeState([]byte(stateOf(files, "")), syncer.Limits{}); err != nil {
			t.Fatal(err)
		}
		_, err := syncer.DecodeState([]byte(stateOf(files, `,"sluice":{"format":1,"layout":"plain",`+more+`}`)), syncer.Limits{})
		if !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAMillionEntries is a state with more entries than are taken: it is refused for their number, and for less than a
// few times its own size in memory.
func TestAMillionEntries(t *testing.T) {
	one := hostileFile(`"f"`) + ","
	state := []byte(stateOf(strings.TrimSuffix(strings.Repeat(one, 1_000_000), ","), ""))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := syncer.DecodeState(state, syncer.Limits{})
	runtime.ReadMemStats(&after)
	if !errors.Is(err, schemas.ErrTooLarge) || !strings.Contains(err.Error(), "500000") {
		t.Error(err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("%d MiB were allocated to refuse %d MiB", used>>20, len(state)>>20)
	}
}
