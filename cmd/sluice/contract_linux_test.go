package main

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 12: the command in docs/contract.md, sent as it is there by a client on the packages of NATS alone, ends as it is said there.
func TestExampleOfTheContractRuns(t *testing.T) {
	c := newCLI(t)
	s := c.up(jailFlags(t, c)...)
	nc := s.stranger(t)
	doc, err := os.ReadFile("../../docs/contract.md")
	testkit.Must(t, err)
	block := func(name string) []byte {
		return regexp.MustCompile("(?ms)^```json " + name + "\n(.*?)^```$").FindSubmatch(doc)[1]
	}
	sub, err := nc.SubscribeSync("_INBOX.x")
	testkit.Must(t, err)
	m := &nats.Msg{Subject: "sluice.v1.local.default.cmd.report-7.exec", Header: nats.Header{"Sluice-Inbox": {"_INBOX.x"}}, Data: block("command")}
	_, err = nc.RequestMsgWithContext(testkit.Context(t), m)
	testkit.Must(t, err)
	var want, got schemas.Event
	testkit.Must(t, json.Unmarshal(block("event"), &want))
	for !got.Type.Terminal() {
		answer, err := sub.NextMsgWithContext(testkit.Context(t))
		testkit.Must(t, err)
		got = schemas.Event{}
		testkit.Must(t, json.Unmarshal(answer.Data, &got))
	}
	testkit.Equal(t, "type", got.Type, want.Type)
	testkit.Equal(t, "process", got.Process, want.Process)
	testkit.Equal(t, "origin", got.Origin, want.Origin)
	var ended, documented schemas.Result
	testkit.Must(t, got.Decode(&ended))
	testkit.Must(t, want.Decode(&documented))
	for _, r := range []*schemas.Result{&ended, &documented} { // what differs from run to run
		r.Log, r.Timestamp, r.DurationMS, r.UserMS, r.SystemMS, r.MaxRSSBytes, r.Worker = documented.Log, documented.Timestamp, 0, 0, 0, 0, ""
	}
	testkit.Equal(t, "result", ended, documented)
}
