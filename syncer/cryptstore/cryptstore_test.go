package cryptstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/cryptstore"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func newKey(t *testing.T) *cryptstore.Key {
	t.Helper()
	key, err := cryptstore.ParseKey(" " + cryptstore.NewKey() + "\n")
	testkit.Must(t, err)
	return key
}

func TestStoreConforms(t *testing.T) {
	key := newKey(t)
	for name, open := range map[string]func(*testing.T) objectstore.Store{
		"memory": func(*testing.T) objectstore.Store { return &storetest.Memory{} },
		"folder": func(t *testing.T) objectstore.Store {
			s, err := dirstore.Open(t.TempDir())
			testkit.Must(t, err)
			t.Cleanup(func() { testkit.Must(t, s.Close()) })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) objectstore.Store { return cryptstore.New(open(t), key) })
		})
	}
}

func TestGuardConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store { return cryptstore.New(&storetest.Memory{}, nil) })
}

const chunk = 64 << 10

func put(t *testing.T, s objectstore.Store, key string, data []byte) {
	t.Helper()
	_, err := s.Put(t.Context(), key, objectstore.Bytes(data), objectstore.Condition{})
	testkit.Must(t, err)
}

func get(t *testing.T, s objectstore.Store, key string) []byte {
	t.Helper()
	data, _, err := s.Get(t.Context(), key, objectstore.Range{}, nil)
	testkit.Must(t, err)
	return data
}

func TestRangesCrossChunks(t *testing.T) {
	s := cryptstore.New(&storetest.Memory{}, newKey(t))
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 3*chunk + 7} {
		data := bytes.Repeat([]byte("0123456789abcdefg"), size/17+1)[:size]
		put(t, s, "k", data)
		for _, from := range []int{0, 1, chunk - 1, chunk, 2*chunk - 1, 3 * chunk} {
			for _, length := range []int{1, 2, chunk, chunk + 2, 3 * chunk} {
				if from+length > size {
					continue
				}
				got, info, err := s.Get(t.Context(), "k", objectstore.Range{Offset: int64(from), Length: int64(length)}, nil)
				if err != nil || !bytes.Equal(got, data[from:][:length]) || info.Size != int64(size) {
					t.Fatalf("%d+%d of %d: got %d bytes of %d: %v", from, length, size, len(got), info.Size, err)
				}
			}
		}
		_, _, err := s.Get(t.Context(), "k", objectstore.Range{Max: int64(size)}, nil)
		testkit.Must(t, err)
	}
}

// TestTamperingIsFound changes what is stored in each way that a store can.
func TestTamperingIsFound(t *testing.T) {
	memory := &storetest.Memory{}
	s := cryptstore.New(memory, newKey(t))
	data := bytes.Repeat([]byte("some content "), 3*chunk/13)
	put(t, s, "k", data)
	put(t, s, "other", data)
	put(t, s, "small", data[:100])
	stored, other := get(t, memory, "k"), get(t, memory, "other")
	const sealed = chunk + 64
	for what, tampered := range map[string][]byte{
		"empty":              {},
		"cut":                stored[:len(stored)-1],
		"cut after a chunk":  stored[:2*sealed],
		"cut in a head":      stored[:sealed+10],
		"only a head":        stored[:48],
		"longer":             append(bytes.Clone(stored), 0),
		"a chunk more":       append(bytes.Clone(stored), stored[:sealed]...),
		"chunks in order ba": append(append(bytes.Clone(stored[sealed:2*sealed]), stored[:sealed]...), stored[2*sealed:]...),
		"chunk of another":   append(bytes.Clone(other[:sealed]), stored[sealed:]...),
		"another object":     other,
	} {
		put(t, memory, "k", tampered)
		_, _, err := s.Get(t.Context(), "k", objectstore.Range{}, nil)
		if !errors.Is(err, schemas.ErrDamaged) {
			t.Errorf("%s: error = %v, want damaged", what, err)
		}
	}
	small := get(t, memory, "small")
	for at := range small { // a bit of each byte of a small object
		small[at] ^= 1 << (at % 8)
		put(t, memory, "small", small)
		if _, _, err := s.Get(t.Context(), "small", objectstore.Range{}, nil); !errors.Is(err, schemas.ErrDamaged) {
			t.Errorf("a bit in byte %d: error = %v, want damaged", at, err)
		}
		small[at] ^= 1 << (at % 8)
	}
	put(t, memory, "small", small)
	testkit.Equal(t, "what was not damaged", string(get(t, s, "small")), string(data[:100]))
	stored[sealed+100] ^= 1
	put(t, memory, "k", stored)
	got, _, err := s.Get(t.Context(), "k", objectstore.Range{}, nil)
	testkit.WantCode(t, err, schemas.CodeDamaged)
	if want := append(append(bytes.Clone(data[:chunk]), make([]byte, chunk)...), data[2*chunk:]...); !bytes.Equal(got, want) {
		t.Error("a damaged chunk spoils the others")
	}
	if got, _, err := s.Get(t.Context(), "k", objectstore.Range{Length: chunk}, nil); err != nil || !bytes.Equal(got, data[:chunk]) {
		t.Errorf("the chunk before a damaged one: %v", err)
	}
}

func TestStoreSeesNoContentAndNoDigest(t *testing.T) {
	memory := &storetest.Memory{}
	key := newKey(t)
	s := cryptstore.New(memory, key)
	sum := sha256.Sum256([]byte("secret content"))
	digest := hex.EncodeToString(sum[:])
	name := state.ObjectPrefix + "0/" + digest
	put(t, s, name, []byte("secret content"))
	put(t, s, state.ReservedName, []byte(`{"files":["secret name"]}`))
	for info, err := range memory.List(t.Context(), "") {
		testkit.Must(t, err)
		if stored := string(get(t, memory, info.Key)); strings.Contains(info.Key, digest) || strings.Contains(stored, "secret") {
			t.Errorf("the store sees %q in %q", stored, info.Key)
		}
	}
	var listed []string
	for info, err := range s.List(t.Context(), state.ObjectPrefix+"0/") {
		testkit.Must(t, err)
		listed = append(listed, info.Key)
		testkit.Equal(t, "size", info.Size, int64(len("secret content")))
	}
	testkit.Equal(t, "listed", listed, []string{name})
	testkit.Equal(t, "content", string(get(t, cryptstore.New(memory, key), name)), "secret content")
}

func TestKeyIsChecked(t *testing.T) {
	memory := &storetest.Memory{}
	s := cryptstore.New(memory, newKey(t))
	put(t, s, state.ReservedName, []byte("{}"))
	for what, read := range map[string]func() error{
		"no key":        func() error { return readState(t, cryptstore.New(memory, nil), state.ReservedName) },
		"another key":   func() error { return readState(t, cryptstore.New(memory, newKey(t)), state.ReservedName) },
		"not encrypted": func() error { return readPlain(t, s, memory) },
	} {
		err := read()
		testkit.WantCode(t, err, schemas.CodePermissionDenied)
		if !errors.Is(err, cryptstore.ErrKey) {
			t.Errorf("%s: error = %v, want ErrKey", what, err)
		}
	}
	for _, text := range []string{"", "sluice-key-1:", "sluice-key-1:abc", cryptstore.NewKey() + "AA", "age" + cryptstore.NewKey()} {
		_, err := cryptstore.ParseKey(text)
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		if text != "" && len(text) > 20 && strings.Contains(err.Error(), text[14:]) {
			t.Errorf("the error has the key: %v", err)
		}
	}
}

func readState(t *testing.T, s objectstore.Store, key string) error {
	t.Helper()
	_, _, err := s.Get(t.Context(), key, objectstore.Range{}, nil)
	return err
}

// readPlain reads a state that was stored without a key.
func readPlain(t *testing.T, s objectstore.Store, memory *storetest.Memory) error {
	t.Helper()
	was := get(t, memory, state.ReservedName)
	defer put(t, memory, state.ReservedName, was)
	put(t, memory, state.ReservedName, []byte(`{"version":"1.0","files":[]}`))
	return readState(t, s, state.ReservedName)
}

// TestWhatIsStoredIsTheSameAtEachRead reads what a Put stores whole, and in pieces from any place, as a retry and a store do.
func TestWhatIsStoredIsTheSameAtEachRead(t *testing.T) {
	memory := &storetest.Memory{}
	for _, size := range []int{0, 1, chunk - 1, chunk, 2*chunk + 7} {
		content, read := bytes.Repeat([]byte("content"), size/7+1)[:size], 0
		s := cryptstore.New(&reread{Store: memory, read: func(c objectstore.Content) {
			whole, err := io.ReadAll(c.Open())
			testkit.Must(t, err)
			testkit.Equal(t, "digest", sha256.Sum256(whole), *c.SHA256)
			for at := len(whole); at >= 0; at -= 1000 {
				piece := make([]byte, 1500)
				n, err := c.Reader.ReadAt(piece, int64(at))
				if want := whole[at:min(at+1500, len(whole))]; !bytes.Equal(piece[:n], want) || (err == nil) != (n == len(piece)) {
					t.Fatalf("size %d: reading at %d: %d bytes (error: %v), want %d", size, at, n, err, len(want))
				}
				read++
			}
		}}, newKey(t))
		put(t, s, "k", content)
		if got, _, err := s.Get(t.Context(), "k", objectstore.Range{}, nil); err != nil || !bytes.Equal(got, content) || read == 0 {
			t.Errorf("size %d: %d bytes came back (error: %v)", size, len(got), err)
		}
	}
}

// TestContentThatChangesIsRefused changes content between the read for its digest and that which stores it.
func TestContentThatChangesIsRefused(t *testing.T) {
	content := bytes.Repeat([]byte("content"), chunk)
	s := cryptstore.New(&reread{Store: &storetest.Memory{}, read: func(objectstore.Content) { content[chunk+1]++ }}, newKey(t))
	_, err := s.Put(t.Context(), "k", objectstore.Bytes(content), objectstore.Condition{})
	testkit.WantCode(t, err, schemas.CodeInternal)
}

// reread is a store that calls read for each content before it stores that.
type reread struct {
	objectstore.Store
	read func(objectstore.Content)
}

func (s *reread) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	s.read(c)
	return s.Store.Put(ctx, key, c, cond)
}
