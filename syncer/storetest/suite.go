package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// Run tests the stores that factory makes. Each must be empty, and apart from every other.
func Run(t *testing.T, factory func(t *testing.T) syncer.Store) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*testing.T, syncer.Store)
	}{
		{"PutGet", testPutGet}, {"Ranges", testRanges}, {"Missing", testMissing}, {"Replace", testReplace},
		{"Conditions", testConditions}, {"Race", testRace}, {"List", testList}, {"Delete", testDelete},
		{"OddKeys", testOddKeys}, {"Large", testLarge}, {"Digest", testDigest}, {"Probe", testProbe},
		{"Cancelled", testCancelled}, {"ReadersSeeWholeObjects", testWholeObjects},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, factory(t)) })
	}
}

func content(data []byte) syncer.Content {
	return syncer.Content{Reader: bytes.NewReader(data), Size: int64(len(data))}
}

func put(t *testing.T, s syncer.Store, key, data string) string {
	t.Helper()
	token, err := s.Put(t.Context(), key, content([]byte(data)), syncer.Condition{})
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	if token == "" {
		t.Fatalf("put %q: no token", key)
	}
	return token
}

func wantCode(t *testing.T, err error, code schemas.Code) {
	t.Helper()
	if got := schemas.CodeOf(err); got != code {
		t.Errorf("code %q (%v), want %q", got, err, code)
	}
}

func testPutGet(t *testing.T, s syncer.Store) {
	for _, data := range []string{"", "x", string(make([]byte, 70_000))} {
		token := put(t, s, "a/b", data)
		got, info, err := s.Get(t.Context(), "a/b", syncer.Range{}, nil)
		if err != nil || string(got) != data {
			t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(data))
		}
		stat, err := s.Stat(t.Context(), "a/b")
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range []syncer.Info{info, stat} {
			if i.Size != int64(len(data)) || i.Token != token || i.Key != "a/b" || i.Modified.IsZero() {
				t.Errorf("info %+v, want size %d and token %s", i, len(data), token)
			}
		}
	}
}

func testRanges(t *testing.T, s syncer.Store) {
	token := put(t, s, "k", "0123456789")
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, 3, "012"}, {3, 4, "3456"}, {8, 2, "89"}, {4, 0, "456789"}} {
		room := make([]byte, 0, 16)
		got, info, err := s.Get(t.Context(), "k", syncer.Range{Offset: c.offset, Length: c.length, Match: token}, room)
		if err != nil || string(got) != c.want {
			t.Errorf("range %d+%d: %q, %v; want %q", c.offset, c.length, got, err, c.want)
			continue
		}
		if info.Size != 10 {
			t.Errorf("range %d+%d: the object has %d bytes, want 10", c.offset, c.length, info.Size)
		}
		if &got[0] != &room[:1][0] {
			t.Errorf("range %d+%d: the buffer given was not used", c.offset, c.length)
		}
	}
	_, _, err := s.Get(t.Context(), "k", syncer.Range{Max: 9}, nil)
	wantCode(t, err, schemas.CodeTooLarge)
	put(t, s, "k", "another")
	_, _, err = s.Get(t.Context(), "k", syncer.Range{Length: 1, Match: token}, nil)
	wantCode(t, err, schemas.CodeConflict)
}

func testMissing(t *testing.T, s syncer.Store) {
	_, _, err := s.Get(t.Context(), "no/such", syncer.Range{}, nil)
	wantCode(t, err, schemas.CodeNotFound)
	_, err = s.Stat(t.Context(), "no/such")
	wantCode(t, err, schemas.CodeNotFound)
	if err := s.Delete(t.Context(), "no/such"); err != nil {
		t.Errorf("deleting nothing: %v", err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("an empty store lists %q, %v", info.Key, err)
	}
}

func testReplace(t *testing.T, s syncer.Store) {
	first := put(t, s, "k", "one")
	if second := put(t, s, "k", "two"); first == second {
		t.Error("another content has the same token")
	}
}

func testConditions(t *testing.T, s syncer.Store) {
	ctx := t.Context()
	first, err := s.Put(ctx, "k", content([]byte("1")), syncer.Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(ctx, "k", content([]byte("2")), syncer.Condition{Absent: true})
	wantCode(t, err, schemas.CodeConflict)
	second, err := s.Put(ctx, "k", content([]byte("3")), syncer.Condition{Match: first})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(ctx, "k", content([]byte("4")), syncer.Condition{Match: first})
	wantCode(t, err, schemas.CodeConflict)
	if got, info, err := s.Get(ctx, "k", syncer.Range{}, nil); err != nil || string(got) != "3" || info.Token != second {
		t.Errorf("%q %s %v, want 3", got, info.Token, err)
	}
	_, err = s.Put(ctx, "none", content([]byte("5")), syncer.Condition{Match: first})
	if c := schemas.CodeOf(err); c != schemas.CodeConflict && c != schemas.CodeNotFound {
		t.Errorf("a condition on what is not there: %v", err)
	}
}

// testRace has many writers swap one object at once, each adding its own line: none may be lost.
func testRace(t *testing.T, s syncer.Store) {
	const writers, rounds = 8, 4
	if _, err := s.Put(t.Context(), "k", content([]byte("-")), syncer.Condition{Absent: true}); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for r := 0; r < rounds; {
				old, info, err := s.Get(t.Context(), "k", syncer.Range{}, nil)
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				_, err = s.Put(t.Context(), "k", content(fmt.Appendf(slices.Clip(old), "[%d.%d]", w, r)), syncer.Condition{Match: info.Token})
				switch {
				case err == nil:
					r++
				case !errors.Is(err, schemas.ErrConflict):
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	group.Wait()
	got, _, err := s.Get(t.Context(), "k", syncer.Range{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for w := range writers {
		for r := range rounds {
			if n := bytes.Count(got, fmt.Appendf(nil, "[%d.%d]", w, r)); n != 1 {
				t.Errorf("round %d of writer %d is there %d times", r, w, n)
			}
		}
	}
}

func testList(t *testing.T, s syncer.Store) {
	want := []string{}
	for i := range 25 {
		key := fmt.Sprintf("d/%02d", i)
		put(t, s, key, "x")
		want = append(want, key)
	}
	put(t, s, "e/1", "x")
	put(t, s, "dd", "x")
	var got []string
	for info, err := range s.List(t.Context(), "d/") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Size != 1 || info.Token == "" {
			t.Errorf("%+v", info)
		}
		got = append(got, info.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for _, err := range s.List(t.Context(), "d/") {
		if err != nil {
			t.Fatal(err)
		}
		break // a caller may stop early
	}
	got = nil
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Key)
	}
	if len(got) != 27 || !slices.IsSorted(got) {
		t.Errorf("all keys: %q", got)
	}
}

func testDelete(t *testing.T, s syncer.Store) {
	put(t, s, "a/1", "x")
	put(t, s, "a/2", "x")
	put(t, s, "b", "x")
	if err := s.Delete(t.Context(), "a/1", "a/2", "a/3"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), "a/1"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("still there: %v", err)
	}
	put(t, s, "c/1", "x")
	if err := s.Delete(t.Context(), "c", "c/2"); err != nil {
		t.Errorf("deleting the beginning of a key: %v", err)
	}
	if err := s.Delete(t.Context(), "c"); err != nil {
		t.Errorf("deleting the beginning of a key: %v", err)
	}
	if _, err := s.Stat(t.Context(), "c/1"); err != nil {
		t.Errorf("gone with the beginning of its key: %v", err)
	}
	if _, err := s.Stat(t.Context(), "b"); err != nil {
		t.Errorf("gone with the others: %v", err)
	}
	put(t, s, "a", "x") // a key may become what was a folder of keys
	if err := s.Delete(t.Context(), "a/1"); err != nil {
		t.Errorf("deleting what cannot be there: %v", err)
	}
	if _, err := s.Stat(t.Context(), "a"); err != nil {
		t.Errorf("gone with a key below it: %v", err)
	}
	if err := s.Delete(t.Context()); err != nil {
		t.Errorf("deleting no keys: %v", err)
	}
}

func testOddKeys(t *testing.T, s syncer.Store) {
	for _, key := range []string{"sp ace", "plus+and&more", "per%20cent", "ünï/çødé", "a=b?c#d", "quote'\"", "semi;colon", "tilde~", ".dot/..dots"} {
		put(t, s, key, key)
		if got, _, err := s.Get(t.Context(), key, syncer.Range{}, nil); err != nil || string(got) != key {
			t.Errorf("%q: %q, %v", key, got, err)
		}
		found := false
		for info, err := range s.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			found = found || info.Key == key
		}
		if !found {
			t.Errorf("%q is not listed", key)
		}
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func testLarge(t *testing.T, s syncer.Store) {
	data := make([]byte, 17<<20+3)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	if _, err := s.Put(t.Context(), "big", content(data), syncer.Condition{}); err != nil {
		t.Fatal(err)
	}
	got, _, err := s.Get(t.Context(), "big", syncer.Range{Offset: 16<<20 - 1, Length: 4}, nil)
	if err != nil || !bytes.Equal(got, data[16<<20-1:][:4]) {
		t.Errorf("across a part's end: %v, %v", got, err)
	}
	if got, _, err = s.Get(t.Context(), "big", syncer.Range{}, nil); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func testDigest(t *testing.T, s syncer.Store) {
	data := []byte("content with its digest")
	sum := sha256.Sum256(data)
	c := content(data)
	c.SHA256 = &sum
	if _, err := s.Put(t.Context(), "k", c, syncer.Condition{}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Get(t.Context(), "k", syncer.Range{}, nil); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%q, %v", got, err)
	}
}

func testProbe(t *testing.T, s syncer.Store) {
	if err := syncer.ProbeConditions(t.Context(), s); err != nil {
		t.Error(err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("the probe left %q behind, %v", info.Key, err)
	}
}

func testCancelled(t *testing.T, s syncer.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(ctx, "k", content([]byte("x")), syncer.Condition{}); err == nil {
		t.Error("a put that was cancelled before it began went through")
	}
	if _, _, err := s.Get(ctx, "k", syncer.Range{}, nil); err == nil || errors.Is(err, schemas.ErrUnavailable) {
		t.Errorf("a get that was cancelled: %v", err)
	}
}

// testWholeObjects reads an object while it is being replaced.
func testWholeObjects(t *testing.T, s syncer.Store) {
	version := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 50_000+i) }
	if _, err := s.Put(t.Context(), "k", content(version(0)), syncer.Condition{}); err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		defer over.Store(true)
		for i := range 30 {
			if _, err := s.Put(t.Context(), "k", content(version(i)), syncer.Condition{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for !over.Load() {
		got, _, err := s.Get(t.Context(), "k", syncer.Range{}, nil)
		if err != nil {
			t.Error(err)
			break
		}
		if i := len(got) - 50_000; i < 0 || !bytes.Equal(got, version(i)) {
			t.Errorf("%d bytes that are no version", len(got))
			break
		}
	}
	group.Wait()
}
