package main

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A client on the packages of NATS alone works on files as docs/contract.md says.
func TestFilesOverPlainNATS(t *testing.T) {
	c := newCLI(t)
	s := c.up()
	c.exec("--", "true").check(t).exits(0) // the thread has an owner
	nc := s.stranger(t)
	request := func(transfer, offset, end, body string) *nats.Msg {
		t.Helper()
		m := &nats.Msg{Subject: "sluice.v1.local.default.ctl.t1." + transfer + ".file", Data: []byte(body), Header: nats.Header{}}
		if offset != "" {
			m.Header.Set("Sluice-Offset", offset)
		}
		if end != "" {
			m.Header.Set("Sluice-End", end)
		}
		reply, err := nc.RequestMsg(m, 30*time.Second)
		testkit.Must(t, err)
		return reply
	}
	reply := func(m *nats.Msg) (r schemas.FileReply) {
		t.Helper()
		testkit.Must(t, json.Unmarshal(m.Data, &r))
		return r
	}
	request("w1", "", "", `{"op":"write","path":"a/b","parents":true}`)
	testkit.Equal(t, "answer to a piece", string(request("w1", "0", "", "hello ").Data), "{}")
	testkit.Equal(t, "answer to the same piece", string(request("w1", "0", "", "hello ").Data), "{}")
	written := reply(request("w1", "6", "true", "world"))
	testkit.Equal(t, "bytes", written.Bytes, int64(11))
	testkit.Equal(t, "answer to the last piece again", reply(request("w1", "6", "true", "world")), written)

	testkit.Equal(t, "answer to a read", string(request("r1", "", "", `{"op":"read","path":"a/b"}`).Data), "{}")
	m := request("r1", "0", "", "")
	testkit.Equal(t, "content and end", []string{string(m.Data), m.Header.Get("Sluice-End"), m.Header.Get("Sluice-Offset")}, []string{"hello world", "true", "0"})
	testkit.Equal(t, "the same piece again", string(request("r1", "0", "", "").Data), "hello world")
	testkit.Equal(t, "a transfer that was ended", string(request("r1", "", "", `{"op":"cancel"}`).Data), "{}")

	n := 0
	for body, want := range map[string]schemas.Code{
		`{"op":"stat","path":"../x"}`: schemas.CodeInvalidArgument, `{"op":"fly"}`: schemas.CodeInvalidArgument, `{"op":"stat","paht":"x"}`: schemas.CodeInvalidArgument,
		`{`: schemas.CodeInvalidArgument, `{"op":"stat","path":"none"}`: schemas.CodeNotFound, `{"op":"stat","session":"other"}`: schemas.CodeSessionExpired,
		`{"op":"remove","path":"a","again":true}`: schemas.CodeNotFound,
	} {
		n++
		r := reply(request("x"+strconv.Itoa(n), "", "", body))
		if r.Error == nil || r.Error.Code != want {
			t.Errorf("%s: error %v, want %s", body, r.Error, want)
		}
	}
	testkit.Equal(t, "a transfer that nothing began", reply(request("none", "0", "", "x")).Error.Code, schemas.CodeNotFound)
	testkit.Equal(t, "an offset that is none", reply(request("none", "-1", "", "x")).Error.Code, schemas.CodeInvalidArgument)
}
