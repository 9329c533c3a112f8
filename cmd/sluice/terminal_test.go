package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestDetachKeys(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "ctrl-p,ctrl-q": "\x10\x11", "a": "a", "ctrl-@": "\x00", "ctrl-_,x": "\x1fx", "ctrl-[": "\x1b",
	} {
		keys, err := parseDetachKeys(text)
		testkit.Must(t, err)
		testkit.Equal(t, text, string(keys), want)
	}
	for _, text := range []string{",", "ab", "ctrl-", "ctrl-1", "ctrl-pp", "a,,b", "ctrl-p,", "é", "\x01", "ctrl-\x00"} {
		_, err := parseDetachKeys(text)
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	}
}

// The keys are found wherever the reads cut them, and what only begins like them arrives.
func TestDetachReader(t *testing.T) {
	for _, v := range []struct {
		typed, want string
		detaches    bool
	}{
		{"ls\n", "ls\n", false},
		{"ls\x10\x11more", "ls", true},
		{"\x10\x10\x11", "\x10", true},
		{"\x10a\x11\x10", "\x10a\x11", false}, // the last key may begin the keys
		{"\x11\x10", "\x11", false},
		{"\x10\x11", "", true},
	} {
		for name, from := range map[string]io.Reader{
			"at once": strings.NewReader(v.typed), "key by key": iotest.OneByteReader(strings.NewReader(v.typed)),
		} {
			detached := false
			r := &detachReader{from: from, keys: []byte("\x10\x11"), ended: closedChannel(), detach: func() { detached = true }}
			got, err := io.ReadAll(r)
			testkit.Must(t, err)
			testkit.Equal(t, name+": keys of "+v.typed, string(got), v.want)
			testkit.Equal(t, name+": detached by "+v.typed, detached, v.detaches)
		}
	}
	got, err := io.ReadAll(&detachReader{from: strings.NewReader("\x10\x11"), detach: func() { t.Error("detached without keys") }})
	testkit.Must(t, err)
	testkit.Equal(t, "keys", string(got), "\x10\x11")
	// Keys that begin like themselves.
	var all bytes.Buffer
	r := &detachReader{from: strings.NewReader("aaab"), keys: []byte("aab"), ended: closedChannel(), detach: func() {}}
	_, err = all.ReadFrom(r)
	testkit.Must(t, err)
	testkit.Equal(t, "keys", all.String(), "a")
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestTerminalIsRefused(t *testing.T) {
	c := newUp(t)
	c.exec("-it", "--", "sh").wantError(t, schemas.CodeInvalidArgument, "not a terminal")
	c.run("shell", "t1").wantError(t, schemas.CodeInvalidArgument, "not a terminal")
	c.run("attach", "p1").wantError(t, schemas.CodeInvalidArgument, "not a terminal")
	c.run("attach").wantError(t, schemas.CodeInvalidArgument, "PROCESS")
	c.exec("-it", "--json", "--", "sh").wantError(t, schemas.CodeInvalidArgument, "--json")
	c.exec("-t", "-n", "--", "sh").wantError(t, schemas.CodeInvalidArgument, "--no-stdin")
	c.exec("-it", "--detach-keys", "ctrl-", "--", "sh").wantError(t, schemas.CodeInvalidArgument, "--detach-keys")
	c.good()
}
