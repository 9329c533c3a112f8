package syncer_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/cryptstore"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// withNewKey encrypts with a key of its own.
func withNewKey() treetest.Option { return encrypted(cryptstore.NewKey()) }

func TestEncryptedWorkspace(t *testing.T) {
	a, b, store, key := treetest.New(t), treetest.New(t), &storetest.Memory{}, withNewKey()
	difficult(a)
	a.Push(store, key)
	b.Pull(store, key)
	treetest.Same(t, a, b)
	for _, w := range []*treetest.Tree{a, b} {
		wantUnchanged(t, "second push", w.Push(store, key))
		wantUnchanged(t, "second pull", w.Pull(store, key))
	}
	for info, err := range store.List(t.Context(), "") {
		testkit.Must(t, err)
		data, _, err := store.Get(t.Context(), info.Key, objectstore.Range{}, nil)
		testkit.Must(t, err)
		if strings.HasPrefix(string(data), "(\xb5/\xfd") {
			t.Errorf("the store sees that %s is compressed", info.Key)
		}
		// A text of fewer bytes may be in 20 MB of random ones.
		for _, text := range []string{"run.sh", "#!/bin/sh", "chunks!!", "packed", "checksum"} {
			if strings.Contains(string(data), text) || strings.Contains(info.Key, text) {
				t.Errorf("the store sees %q in %s", text, info.Key)
			}
		}
	}
	first := a.Syncer(store, key)
	before, err := first.Versions(t.Context())
	testkit.Must(t, err)
	b.Write("run.sh", "changed")
	b.Write("copy", a.Read("huge")) // its chunks are stored
	if r := b.Push(store, key); r.BytesSent > 1<<20 {
		t.Errorf("%d bytes sent for content that the store has", r.BytesSent)
	}
	entries, err := first.List(t.Context(), "", "copy")
	testkit.Must(t, err)
	testkit.Equal(t, "listed", len(entries), 1)
	var text strings.Builder
	testkit.Must(t, first.Copy(t.Context(), "", "run.sh", &text))
	testkit.Equal(t, "cat", text.String(), "changed")
	changes, err := first.Diff(t.Context(), before[0].ID, "")
	testkit.Must(t, err)
	testkit.Equal(t, "changes", len(changes), 2)
	c := treetest.New(t)
	_, err = c.Syncer(store, key).PullAt(t.Context(), before[0].ID)
	testkit.Must(t, err)
	treetest.Same(t, a, c)
	_, err = b.Syncer(store, key, func(c *syncer.Config) {
		c.Retention, c.Now = syncer.Retention{Keep: 1}, func() time.Time { return time.Now().Add(48 * time.Hour) }
	}).Collect(t.Context())
	testkit.Must(t, err)
	c.Pull(store, key)
	treetest.Same(t, b, c)
}

// TestKeyOfAWorkspaceIsChecked syncs without the key, with another, and with one that the workspace does not need, also from a folder
// that knows the newest state: nothing is changed.
func TestKeyOfAWorkspaceIsChecked(t *testing.T) {
	key := withNewKey()
	none := func(*syncer.Config) {}
	for what, keys := range map[string][2]treetest.Option{"missing": {key, none}, "another": {key, withNewKey()}, "needless": {none, key}} {
		t.Run(what, func(t *testing.T) {
			a, fresh, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
			a.Write("f", "1")
			a.Push(store, keys[0])
			a.Write("f", "2")
			a.Push(store, keys[0])
			was := treetest.Objects(t, store)
			a.Write("f", "3")
			fresh.Write("g", "1")
			for _, w := range []*treetest.Tree{a, fresh} {
				s := w.Syncer(store, keys[1])
				_, pushed := s.Push(t.Context())
				_, pulled := s.Pull(t.Context())
				_, checked := s.Check(t.Context(), true)
				_, collected := s.Collect(t.Context())
				_, statusErr := s.Status(t.Context())
				_, listed := s.List(t.Context(), "", "")
				for op, err := range map[string]error{"push": pushed, "pull": pulled, "check": checked, "collect": collected, "status": statusErr,
					"list": listed, "cat": s.Copy(t.Context(), "", "f", io.Discard)} {
					if !errors.Is(err, cryptstore.ErrKey) || schemas.CodeOf(err) != schemas.CodePermissionDenied {
						t.Errorf("%s: error = %v, want ErrKey", op, err)
					}
				}
			}
			testkit.Equal(t, "objects", treetest.Objects(t, store), was)
			a.Want("f", "3")
			fresh.WantExists("f", false)
			a.Push(store, keys[0])
		})
	}
	cfg := syncer.Config{Root: t.TempDir(), Store: &storetest.Memory{}, Remote: "test://store", Layout: state.Plain}
	key(&cfg)
	_, err := syncer.New(cfg)
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

// TestEncryptedDamageIsRepaired damages the state and the content, in the head of a chunk and behind it.
func TestEncryptedDamageIsRepaired(t *testing.T) {
	key := withNewKey()
	for _, of := range []string{state.ReservedName, state.ObjectPrefix} {
		for _, at := range []int{0, 9, 30, 60} {
			a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
			a.Write("f", "1")
			a.Write("g", "2")
			a.Push(store, key)
			for info, err := range store.List(t.Context(), of) {
				testkit.Must(t, err)
				if of == state.ReservedName && info.Key != of {
					continue
				}
				data, _, err := store.Get(t.Context(), info.Key, objectstore.Range{}, nil)
				testkit.Must(t, err)
				data[at] ^= 4
				_, err = store.Put(t.Context(), info.Key, objectstore.Bytes(data), objectstore.Condition{})
				testkit.Must(t, err)
			}
			_, err := b.Syncer(store, key).Pull(t.Context())
			testkit.WantCode(t, err, schemas.CodeDamaged)
			_, err = a.Syncer(store, key).Check(t.Context(), false)
			testkit.WantCode(t, err, schemas.CodeDamaged)
			_, err = a.Syncer(store, key).Check(t.Context(), true)
			testkit.Must(t, err)
			b.Pull(store, key)
			treetest.Same(t, a, b)
		}
	}
}
