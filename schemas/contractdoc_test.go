package schemas_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 12: the examples of docs/contract.md decode, and fit their JSON Schema. A block of "```json NAME" is an example of the
// schema of that name, and the event is the end of the command.
func TestExamplesInTheContract(t *testing.T) {
	doc, err := os.ReadFile("../docs/contract.md")
	testkit.Must(t, err)
	blocks := map[string][]byte{}
	for _, block := range regexp.MustCompile("(?ms)^```json ([a-z-]+)\n(.*?)^```$").FindAllSubmatch(doc, -1) {
		name, body := string(block[1]), block[2]
		blocks[name] = body
		if err := bySchema(t, name, body); err != nil {
			t.Errorf("json/%s.json refuses %s: %v", name, body, err)
		}
		v, err := decodeExample(name, body)
		testkit.Must(t, err)
		testkit.Equal(t, "example after decoding and encoding", anyOf(t, mustJSON(t, v)), anyOf(t, body))
	}
	cmd, err := schemas.DecodeCommand(blocks["command"])
	testkit.Must(t, err)
	ev, err := schemas.DecodeEvent(blocks["event"])
	testkit.Must(t, err)
	var result schemas.Result
	testkit.Must(t, ev.Decode(&result))
	testkit.Equal(t, "fingerprint", result.Fingerprint, cmd.Fingerprint())
	testkit.Equal(t, "process", ev.Process, schemas.ProcessID(ev.Tenant, cmd.Thread, cmd.Key))
	testkit.Equal(t, "origin", ev.Origin, cmd.Origin)
}
