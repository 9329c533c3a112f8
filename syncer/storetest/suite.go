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

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// Run tests the stores that factory makes. Each must be empty and independent of the others. lacks has the tests that the server of
// a store is known to fail: they are left out.
func Run(t *testing.T, factory func(t *testing.T) objectstore.Store, lacks ...string) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*testing.T, objectstore.Store)
	}{
		{"PutGet", testPutGet}, {"Ranges", testRanges}, {"Missing", testMissing}, {"Replace", testReplace},
		{"Conditions", testConditions}, {"Race", testRace}, {"List", testList}, {"Delete", testDelete},
		{"OddKeys", testOddKeys}, {"Large", testLarge}, {"Digest", testDigest}, {"Probe", testProbe},
		{"Canceled", testCanceled}, {"ReadersSeeWholeObjects", testWholeObjects},
	} {
		if !slices.Contains(lacks, test.name) {
			t.Run(test.name, func(t *testing.T) { test.run(t, factory(t)) })
		}
	}
}

func put(t *testing.T, s objectstore.Store, key, data string) string {
	t.Helper()
	token, err := s.Put(t.Context(), key, objectstore.Bytes([]byte(data)), objectstore.Condition{})
	testkit.Must(t, err)
	if token == "" {
		t.Fatalf("Put of %q returned no token", key)
	}
	return token
}

func testPutGet(t *testing.T, s objectstore.Store) {
	for _, data := range []string{"", "x", string(make([]byte, 70_000))} {
		token := put(t, s, "a/b", data)
		got, info, err := s.Get(t.Context(), "a/b", objectstore.Range{}, nil)
		if err != nil || string(got) != data {
			t.Fatalf("Get returned %d bytes (error: %v), want the %d stored", len(got), err, len(data))
		}
		stat, err := s.Stat(t.Context(), "a/b")
		testkit.Must(t, err)
		for _, i := range []objectstore.Info{info, stat} {
			if i.Size != int64(len(data)) || i.Token != token || i.Key != "a/b" || i.Modified.IsZero() {
				t.Errorf("info = %+v, want size %d, token %s and a time", i, len(data), token)
			}
		}
	}
}

func testRanges(t *testing.T, s objectstore.Store) {
	token := put(t, s, "k", "0123456789")
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, 3, "012"}, {3, 4, "3456"}, {8, 2, "89"}, {4, 0, "456789"}} {
		buffer := make([]byte, 0, 1<<10)
		got, info, err := s.Get(t.Context(), "k", objectstore.Range{Offset: c.offset, Length: c.length, Match: token}, buffer)
		if err != nil || string(got) != c.want {
			t.Errorf("range %d+%d: got %q (error: %v), want %q", c.offset, c.length, got, err, c.want)
			continue
		}
		if info.Size != 10 {
			t.Errorf("range %d+%d: size of the object = %d, want 10", c.offset, c.length, info.Size)
		}
		if &got[0] != &buffer[:1][0] {
			t.Errorf("range %d+%d: Get did not use the given buffer", c.offset, c.length)
		}
	}
	_, _, err := s.Get(t.Context(), "k", objectstore.Range{Max: 9}, nil)
	testkit.WantCode(t, err, schemas.CodeTooLarge)
	put(t, s, "k", "another")
	_, _, err = s.Get(t.Context(), "k", objectstore.Range{Length: 1, Match: token}, nil)
	testkit.WantCode(t, err, schemas.CodeConflict)
}

func testMissing(t *testing.T, s objectstore.Store) {
	_, _, err := s.Get(t.Context(), "no/such", objectstore.Range{}, nil)
	testkit.WantCode(t, err, schemas.CodeNotFound)
	_, err = s.Stat(t.Context(), "no/such")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	testkit.Must(t, s.Delete(t.Context(), "no/such"))
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("an empty store lists %q (error: %v)", info.Key, err)
	}
}

func testReplace(t *testing.T, s objectstore.Store) {
	first := put(t, s, "k", "one")
	if second := put(t, s, "k", "two"); first == second {
		t.Errorf("token after a replacement = %s, want another", second)
	}
}

func testConditions(t *testing.T, s objectstore.Store) {
	ctx := t.Context()
	first, err := s.Put(ctx, "k", objectstore.Bytes([]byte("1")), objectstore.Condition{Absent: true})
	testkit.Must(t, err)
	_, err = s.Put(ctx, "k", objectstore.Bytes([]byte("2")), objectstore.Condition{Absent: true})
	testkit.WantCode(t, err, schemas.CodeConflict)
	second, err := s.Put(ctx, "k", objectstore.Bytes([]byte("3")), objectstore.Condition{Match: first})
	testkit.Must(t, err)
	_, err = s.Put(ctx, "k", objectstore.Bytes([]byte("4")), objectstore.Condition{Match: first})
	testkit.WantCode(t, err, schemas.CodeConflict)
	if got, info, err := s.Get(ctx, "k", objectstore.Range{}, nil); err != nil || string(got) != "3" || info.Token != second {
		t.Errorf("Get returned %q with token %s (error: %v), want 3 with %s", got, info.Token, err, second)
	}
	_, err = s.Put(ctx, "none", objectstore.Bytes([]byte("5")), objectstore.Condition{Match: first})
	if c := schemas.CodeOf(err); c != schemas.CodeConflict && c != schemas.CodeNotFound {
		t.Errorf("condition on a missing key: code = %q, want conflict or not_found (error: %v)", c, err)
	}
}

// testRace has many writers replace one object at once, each adding its own text: none may be lost.
func testRace(t *testing.T, s objectstore.Store) {
	const writers, rounds = 8, 4
	_, err := s.Put(t.Context(), "k", objectstore.Bytes([]byte("-")), objectstore.Condition{Absent: true})
	testkit.Must(t, err)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for r := 0; r < rounds; {
				old, info, err := s.Get(t.Context(), "k", objectstore.Range{}, nil)
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				longer := objectstore.Bytes(fmt.Appendf(slices.Clip(old), "[%d.%d]", w, r))
				_, err = s.Put(t.Context(), "k", longer, objectstore.Condition{Match: info.Token})
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
	got, _, err := s.Get(t.Context(), "k", objectstore.Range{}, nil)
	testkit.Must(t, err)
	for w := range writers {
		for r := range rounds {
			if n := bytes.Count(got, fmt.Appendf(nil, "[%d.%d]", w, r)); n != 1 {
				t.Errorf("text of round %d of writer %d occurs %d times, want once", r, w, n)
			}
		}
	}
}

func testList(t *testing.T, s objectstore.Store) {
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
		testkit.Must(t, err)
		if info.Size != 1 || info.Token == "" {
			t.Errorf("info = %+v, want size 1 and a token", info)
		}
		got = append(got, info.Key)
	}
	testkit.Equal(t, "listed keys", got, want)
	for _, err := range s.List(t.Context(), "d/") {
		testkit.Must(t, err)
		break // callers may stop early
	}
	got = nil
	for info, err := range s.List(t.Context(), "") {
		testkit.Must(t, err)
		got = append(got, info.Key)
	}
	if len(got) != 27 || !slices.IsSorted(got) {
		t.Errorf("all keys = %q, want 27 in order", got)
	}
}

func testDelete(t *testing.T, s objectstore.Store) {
	put(t, s, "a/1", "x")
	put(t, s, "a/2", "x")
	put(t, s, "b", "x")
	remove := func(keys ...string) {
		t.Helper()
		testkit.Must(t, s.Delete(t.Context(), keys...))
	}
	exists := func(key string) {
		t.Helper()
		_, err := s.Stat(t.Context(), key)
		testkit.Must(t, err)
	}
	remove("a/1", "a/2", "a/3")
	_, err := s.Stat(t.Context(), "a/1")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	put(t, s, "c/1", "x")
	remove("c", "c/2") // the beginning of a key
	remove("c")
	exists("c/1")
	exists("b")
	put(t, s, "a", "x") // in place of a folder of keys
	remove("a/1")       // a key below another
	exists("a")
	remove()
}

func testOddKeys(t *testing.T, s objectstore.Store) {
	for _, key := range []string{"sp ace", "plus+and&more", "per%20cent", "ünï/çødé", "a=b?c#d", "quote'\"", "semi;colon", "tilde~", ".dot/..dots"} {
		put(t, s, key, key)
		if got, _, err := s.Get(t.Context(), key, objectstore.Range{}, nil); err != nil || string(got) != key {
			t.Errorf("Get of %q returned %q (error: %v), want the key", key, got, err)
		}
		found := false
		for info, err := range s.List(t.Context(), "") {
			testkit.Must(t, err)
			found = found || info.Key == key
		}
		if !found {
			t.Errorf("List does not have %q", key)
		}
		testkit.Must(t, s.Delete(t.Context(), key))
	}
}

func testLarge(t *testing.T, s objectstore.Store) {
	data := make([]byte, 17<<20+3)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	_, err := s.Put(t.Context(), "big", objectstore.Bytes(data), objectstore.Condition{})
	testkit.Must(t, err)
	got, _, err := s.Get(t.Context(), "big", objectstore.Range{Offset: 16<<20 - 1, Length: 4}, nil)
	if err != nil || !bytes.Equal(got, data[16<<20-1:][:4]) {
		t.Errorf("Get across the end of a part returned %v (error: %v), want %v", got, err, data[16<<20-1:][:4])
	}
	if got, _, err = s.Get(t.Context(), "big", objectstore.Range{}, nil); err != nil || !bytes.Equal(got, data) {
		t.Errorf("Get returned %d bytes (error: %v), want the %d stored", len(got), err, len(data))
	}
}

func testDigest(t *testing.T, s objectstore.Store) {
	data := []byte("content with its digest")
	sum := sha256.Sum256(data)
	c := objectstore.Bytes(data)
	c.SHA256 = &sum
	_, err := s.Put(t.Context(), "k", c, objectstore.Condition{})
	testkit.Must(t, err)
	if got, _, err := s.Get(t.Context(), "k", objectstore.Range{}, nil); err != nil || !bytes.Equal(got, data) {
		t.Errorf("Get returned %q (error: %v), want %q", got, err, data)
	}
}

func testProbe(t *testing.T, s objectstore.Store) {
	testkit.Must(t, objectstore.ProbeConditions(t.Context(), s, "probe/", objectstore.InOne))
	if err := objectstore.ProbeConditions(t.Context(), s, "probe/", objectstore.InParts); !errors.Is(err, objectstore.ErrIgnored) {
		testkit.Must(t, err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("the probe left %q (error: %v)", info.Key, err)
	}
}

func testCanceled(t *testing.T, s objectstore.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(ctx, "k", objectstore.Bytes([]byte("x")), objectstore.Condition{}); err == nil {
		t.Error("Put with a canceled context succeeded")
	}
	if _, _, err := s.Get(ctx, "k", objectstore.Range{}, nil); err == nil || errors.Is(err, schemas.ErrUnavailable) {
		t.Errorf("Get with a canceled context: error = %v, want one that is not retried", err)
	}
}

// testWholeObjects reads an object while it is being replaced.
func testWholeObjects(t *testing.T, s objectstore.Store) {
	version := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 50_000+i) }
	_, err := s.Put(t.Context(), "k", objectstore.Bytes(version(0)), objectstore.Condition{})
	testkit.Must(t, err)
	var over atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		defer over.Store(true)
		for i := range 30 {
			if _, err := s.Put(t.Context(), "k", objectstore.Bytes(version(i)), objectstore.Condition{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for !over.Load() {
		got, _, err := s.Get(t.Context(), "k", objectstore.Range{}, nil)
		if err != nil {
			t.Error(err)
			break
		}
		if i := len(got) - 50_000; i < 0 || !bytes.Equal(got, version(i)) {
			t.Errorf("Get returned %d bytes that no Put has stored", len(got))
			break
		}
	}
	group.Wait()
}
