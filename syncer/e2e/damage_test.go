package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestDamagedStateFailsThePull damages the state on the server's disk. Sync 4.
func TestDamagedStateFailsThePull(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		w, store := treetest.New(t), open(t, t.Name())
		w.Write("f", "1")
		w.Push(store, o)
		file := filepath.Join(server.Dir, t.Name(), state.ReservedName)
		good, err := os.ReadFile(file)
		testkit.Must(t, err)
		for _, torn := range [][]byte{{}, good[:len(good)/2], append([]byte{'['}, good[1:]...)} {
			testkit.Must(t, os.WriteFile(file, torn, 0o600))
			fresh := treetest.New(t)
			_, err := fresh.Syncer(store).Pull(t.Context())
			testkit.WantCode(t, err, schemas.CodeDamaged)
			testkit.Equal(t, "folder", fresh.List(), []string(nil))
		}
		w.Write("g", "2")
		w.Push(store)
		treetest.Same(t, w, pulled(t, store))
	})
}

// TestHostileIDIsNoKey stores a state with an ID that leads out of its prefix: a push writes nothing there. Sync 7.
func TestHostileIDIsNoKey(t *testing.T) {
	w, store := treetest.New(t), open(t, t.Name()+"/own")
	w.Write("f", "1")
	treetest.PutState(t, store, []byte(`{"version":"1.0","last_synced_at":0,"files":[],"sluice":{"format":1,"layout":"packed",`+
		`"id":"../../../other/state"}}`))
	_, err := w.Syncer(store).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	entries, err := os.ReadDir(filepath.Join(server.Dir, t.Name()))
	testkit.Must(t, err)
	testkit.Equal(t, "prefixes", len(entries), 1)
}

// TestCheckRepairsWhatTheServerLost flips a bit of, and deletes, each object on the server's disk. Sync 5.
func TestCheckRepairsWhatTheServerLost(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		w, store := treetest.New(t), open(t, t.Name())
		w.Write("d/f", "some content")
		w.Write("large", strings.Repeat("0123456789", 1_000_000))
		w.Push(store, o)
		for _, damage := range []func(file string) error{os.Remove, func(file string) error {
			data, err := os.ReadFile(file)
			if err == nil {
				data[len(data)/2] ^= 1
				err = os.WriteFile(file, data, 0o600)
			}
			return err
		}} {
			var keys []string
			for info, err := range store.List(t.Context(), "") {
				testkit.Must(t, err)
				if info.Key != state.ReservedName && !strings.HasPrefix(info.Key, state.VersionPrefix) {
					keys = append(keys, info.Key)
				}
			}
			for _, key := range keys {
				testkit.Must(t, damage(filepath.Join(server.Dir, t.Name(), key)))
			}
			local := w.Syncer(store, treetest.OnConflict(plan.ConflictLocal))
			_, err := local.Check(t.Context(), false)
			testkit.WantCode(t, err, schemas.CodeDamaged)
			r, err := local.Check(t.Context(), true)
			testkit.Must(t, err)
			testkit.Equal(t, "repaired", r.Repaired, len(r.Damage))
			treetest.Same(t, w, pulled(t, store))
		}
	})
}
