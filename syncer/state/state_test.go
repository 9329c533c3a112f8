package state_test

import (
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/state/statetest"
)

func decode(t *testing.T, file string) *state.State {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	testkit.Must(t, err)
	s, err := state.Decode(data, state.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

func times(s *state.State) []time.Time {
	all := []time.Time{s.SyncedAt}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == state.File {
			all = append(all, n.ModTime())
		}
	}
	return all
}

// TestDecodeReadsEveryTimeForm decodes the same times from RFC 3339 strings, as earlier versions wrote them, and from Unix
// seconds, and those without their fraction from the documented minimal form.
func TestDecodeReadsEveryTimeForm(t *testing.T) {
	synced, one, two := time.Unix(1704067200, 5).UTC(), time.Unix(1704067100, 123456789).UTC(), time.Unix(-2, 500_000_000).UTC()
	want := []time.Time{synced, one, two}
	testkit.Equal(t, "times of RFC 3339", times(decode(t, "rfc3339.json")), want)
	testkit.Equal(t, "times of Unix seconds", times(decode(t, "unix.json")), want)
	testkit.Equal(t, "state", decode(t, "rfc3339.json"), decode(t, "unix.json"))
	for i := range want {
		want[i] = time.Unix(want[i].Unix(), 0).UTC()
	}
	testkit.Equal(t, "times of the documented form", times(decode(t, "documented.json")), want)
}

func TestEncodeWritesUnixSeconds(t *testing.T) {
	want, err := os.ReadFile("testdata/unix.json")
	testkit.Must(t, err)
	testkit.Equal(t, "state", string(decode(t, "rfc3339.json").Encode()), string(want))
	if got := string((&state.State{}).Encode()); !strings.Contains(got, `"last_synced_at":0,`) {
		t.Errorf("state that was never synced = %s, want last_synced_at 0", got)
	}
}

func TestDecodeReadsOtherTimes(t *testing.T) {
	for text, want := range map[string]time.Time{
		`1704067100.25`:          time.Unix(1704067100, 250_000_000),
		`1.7e9`:                  time.Unix(1700000000, 0),
		`-1.5`:                   time.Unix(-2, 500_000_000),
		`0`:                      time.Unix(0, 0),
		`null`:                   time.Unix(0, 0),
		`"1969-12-31T23:59:58Z"`: time.Unix(-2, 0),
		`99999999999999`:         time.Unix(9223372035, 0), // clipped to what 64 bits of nanoseconds hold
		`1e300`:                  time.Unix(9223372035, 0),
	} {
		data := strings.Replace(statetest.JSON(statetest.FileJSON(`"f"`), ""), `"modified_at":1767323045`, `"modified_at":`+text, 1)
		s, err := state.Decode([]byte(data), state.Limits{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := s.Nodes[0].ModTime(); !got.Equal(want) {
			t.Errorf("%s: time = %s, want %s", text, got, want.UTC())
		}
	}
}

func TestDecodeReadsNoSyncAndClipsItsTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		`0`: {}, `null`: {}, `"0001-01-01T00:00:00Z"`: {}, `99999999999999`: time.Unix(9223372035, 0).UTC(),
		`"9999-01-01T00:00:00Z"`: time.Unix(9223372035, 0).UTC(),
	} {
		s, err := state.Decode([]byte(strings.Replace(statetest.JSON("", ""), "1767323045", text, 1)), state.Limits{})
		testkit.Must(t, err)
		testkit.Equal(t, "last sync of "+text, s.SyncedAt, want)
	}
}

// TestDecodeImpliesParents decodes a state of another tool, which lists no folders.
func TestDecodeImpliesParents(t *testing.T) {
	var paths []string
	for _, n := range decode(t, "documented.json").Nodes {
		paths = append(paths, fmt.Sprintf("%s %s %o", n.Path, n.Kind, n.Mode))
	}
	testkit.Equal(t, "paths", paths, []string{"README file 644", "src folder 755", "src/main.py file 644"})
}

// TestDecodeImpliesParentsInAStateOfSluice decodes a state to which another tool has added a file, and kept the rest.
func TestDecodeImpliesParentsInAStateOfSluice(t *testing.T) {
	files := statetest.FileJSON(`"a/new/b/f"`) + "," + statetest.FileJSON(`"a/old"`) + "," + statetest.FileJSON(`"a-/f"`)
	s, err := state.Decode([]byte(statetest.JSON(files, `,"sluice":{"format":1,"layout":"plain","folders":[{"path":"a","mode":"0700"}]}`)), state.Limits{})
	testkit.Must(t, err)
	var paths []string
	for _, n := range s.Nodes {
		paths = append(paths, fmt.Sprintf("%s %s %o", n.Path, n.Kind, n.Mode))
	}
	testkit.Equal(t, "paths", paths, []string{
		"a folder 700", "a/new folder 755", "a/new/b folder 755", "a/new/b/f file 644", "a/old file 644", "a- folder 755", "a-/f file 644",
	})
}

// TestDecodeRefusesLongPathsCheaply decodes a path of many folders: it is refused for its length, without a look at each folder.
func TestDecodeRefusesLongPathsCheaply(t *testing.T) {
	_, err := state.Decode([]byte(statetest.JSON(statetest.FileJSON(`"`+strings.Repeat("d/", 8<<20)+`f"`), "")), state.Limits{})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	testkit.Contains(t, "error", err.Error(), "too long")
}

func TestStateRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(1, 9e9).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
		want := state.State{Layout: state.Plain, ID: "20260101T000000.000000Z-1", Count: 3, SyncedAt: at, Nodes: statetest.Tree(t, "")}
		got, err := state.Decode(want.Encode(), state.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("state differs (-want +got):\n%s", diff)
		}
	})
}

// TestSealRefusesWhatDecodeRefuses seals states that break a rule. Sync 1.
func TestSealRefusesWhatDecodeRefuses(t *testing.T) {
	a, b, f := statetest.File("a", "1"), statetest.File("b", "2"), statetest.File("b/f", "3")
	for name, s := range map[string]state.State{
		"twice": {Nodes: []state.Node{a, a}}, "unsorted": {Nodes: []state.Node{b, a}}, "below a file": {Nodes: []state.Node{b, f}},
		"ID": {Nodes: []state.Node{a}, ID: "../x"}, "too many": {Nodes: []state.Node{a, b, statetest.File("c", "")}},
	} {
		if _, err := s.Seal(state.Limits{Entries: 2}); err == nil {
			t.Errorf("%s: the state was sealed", name)
		}
	}
}

func TestLeadsOutside(t *testing.T) {
	for link, want := range map[string]bool{
		"l -> x": false, "l -> ./x/y": false, "d/l -> ../x": false, "d/l -> ..": false, "l -> .": false, "d/e/l -> ../../x/y": false,
		"l -> ..": true, "l -> /x": true, "d/l -> ../../x": true, "l -> ": true, "l -> s/s/../../x": true, "d/l -> x/../y": true,
	} {
		path, target, _ := strings.Cut(link, " -> ")
		if got := state.LeadsOutside(path, target); got != want {
			t.Errorf("%s: leads outside = %t, want %t", link, got, want)
		}
	}
}

func TestDecodeRefusesHostileStates(t *testing.T) {
	for name, data := range statetest.Hostile() {
		_, err := state.Decode([]byte(data), state.Limits{Entries: 1000})
		if c := schemas.CodeOf(err); c != schemas.CodeInvalidArgument && c != schemas.CodeTooLarge {
			t.Errorf("%s: code = %q, want invalid_argument or too_large (error: %v)", name, c, err)
		}
	}
}

// TestDecodeChecksPending decodes hostile lists of what a push of the plain layout still has to do.
func TestDecodeChecksPending(t *testing.T) {
	files := statetest.FileJSON(`"f"`) + "," + strings.Replace(statetest.FileJSON(`"big"`), `"size":0`, `"size":5`, 1)
	if _, err := state.Decode([]byte(statetest.JSON(files, "")), state.Limits{}); err != nil {
		t.Fatal(err)
	}
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
		_, err := state.Decode([]byte(statetest.JSON(files, `,"sluice":{"format":1,"layout":"plain",`+more+`}`)), state.Limits{})
		if c := schemas.CodeOf(err); c != schemas.CodeInvalidArgument {
			t.Errorf("%s: code = %q, want invalid_argument (error: %v)", name, c, err)
		}
	}
}

// TestDecodeRefusesManyEntriesCheaply decodes a state over the limit: it is refused for the number of its entries, and for
// less memory than a few times its size.
func TestDecodeRefusesManyEntriesCheaply(t *testing.T) {
	data := []byte(statetest.JSON(strings.TrimSuffix(strings.Repeat(statetest.FileJSON(`"f"`)+",", 1_600_000), ","), ""))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := state.Decode(data, state.Limits{})
	runtime.ReadMemStats(&after)
	testkit.WantCode(t, err, schemas.CodeTooLarge)
	if !strings.Contains(err.Error(), "1500000") {
		t.Errorf("error = %q, want the limit of 1500000", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("allocated %d MiB to refuse %d MiB, want at most 64", used>>20, len(data)>>20)
	}
}

// large returns a state of 100,000 files.
func large() *state.State {
	s := &state.State{Layout: state.Packed, ID: "20260101T000000.000000Z-1", Count: 3, SyncedAt: time.Unix(1704067200, 5)}
	for d := range 100 {
		s.Objects = append(s.Objects, state.Object{Digest: sha256.Sum256(fmt.Append(nil, d)), Size: state.ChunkSize})
		dir := fmt.Sprintf("dir-%03d", d)
		s.Nodes = append(s.Nodes, state.Node{Path: dir, Kind: state.Dir, Mode: 0o755, Hashed: true})
		for i := range 1000 {
			data := fmt.Append(nil, d, i)
			s.Nodes = append(s.Nodes, state.Node{Path: fmt.Sprintf("%s/file-%04d.go", dir, i), Kind: state.File, Mode: 0o644, Size: 1000,
				Modified: 1704067100_000000000 + int64(d*1000+i)*1234567, MD5: md5.Sum(data), Digest: sha256.Sum256(data), Hashed: true,
				At: state.Location{Objects: []uint32{uint32(d)}, Offset: int64(i) * 1000}})
		}
	}
	return s
}

func BenchmarkEncode(b *testing.B) {
	s := large()
	for b.Loop() {
		b.SetBytes(int64(len(s.Encode())))
	}
}

func BenchmarkDecode(b *testing.B) {
	data := large().Encode()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := state.Decode(data, state.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
