package events

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// asyncAPI is the part of schemas/asyncapi.yaml that these tests read.
type asyncAPI struct {
	Channels map[string]struct {
		Address    string               `yaml:"address"`
		Parameters map[string]yaml.Node `yaml:"parameters"`
	} `yaml:"channels"`
	Components struct {
		Parameters map[string]struct {
			Enum []string `yaml:"enum"`
		} `yaml:"parameters"`
		Messages map[string]struct {
			Headers struct {
				Properties map[string]yaml.Node `yaml:"properties"`
			} `yaml:"headers"`
		} `yaml:"messages"`
	} `yaml:"components"`
}

const asyncAPIFile = "../schemas/asyncapi.yaml"

func readAsyncAPI(t *testing.T) (asyncAPI, string) {
	t.Helper()
	body, err := os.ReadFile(asyncAPIFile)
	testkit.Must(t, err)
	var doc asyncAPI
	testkit.Must(t, yaml.Unmarshal(body, &doc))
	return doc, string(body)
}

// Each address, with its parameters filled in, is a subject that Subjects builds.
func TestAsyncAPIHasTheAddresses(t *testing.T) {
	doc, _ := readAsyncAPI(t)
	s := NewSubjects("{cell}")
	const tenant, thread, process = "{tenant}", "{thread}", "{process}"
	want := map[string]string{
		"cmd":        s.Command(tenant, thread, "{op}"),
		"cancel":     s.Command(tenant, thread, schemas.OpCancel),
		"rpc":        s.RPC(tenant, thread, "{op}"),
		"signal":     s.Control(tenant, thread, process, VerbSignal),
		"kill":       s.Control(tenant, thread, process, VerbKill),
		"stdin":      s.Control(tenant, thread, process, VerbStdin),
		"resize":     s.Control(tenant, thread, process, VerbResize),
		"file":       s.Control(tenant, thread, "{transfer}", VerbFile),
		"stop":       s.Control(tenant, thread, noProcess, VerbStop),
		"start":      s.Control(tenant, thread, noProcess, VerbStart),
		"renew":      s.Control(tenant, thread, noProcess, VerbRenew),
		"sync":       s.Control(tenant, thread, noProcess, VerbSync),
		"service":    s.Control(tenant, thread, noProcess, VerbService),
		"connect":    s.Control(tenant, thread, noProcess, VerbConnect),
		"tunnelUp":   s.Tunnel(tenant, thread, "{connection}", tunnelUp),
		"tunnelDown": s.Tunnel(tenant, thread, "{connection}", tunnelDown),
		"place":      s.API(tenant, placeVerb),

		"workspace": s.Workspaces(tenant, "{worker}"),
		"processes": s.Processes(tenant, "{worker}"),
		"clean":     s.API(tenant, cleanVerb),
		"fwd":       s.Forward(tenant, "{worker}", thread, "{forwarded}"),
		"evt":       s.Event(tenant, thread, process, "{class}.{name}"),
		"log":       s.Log(tenant, thread, process, "{stream}"),
		"msg":       s.Message(tenant, thread, process, "{role}"),
		"dlq":       s.DeadLetter(tenant, thread),
		"inbox":     "{inbox}",
	}
	want["template"] = "$KV." + namesOf("{cell}").state + ".template.{template}"
	want["feed"] = strings.Replace(want["evt"], ".evt.", ".feed.", 1)
	want["tail"] = strings.Replace(want["log"], ".log.", ".tail.", 1)
	want["said"] = strings.Replace(want["msg"], ".msg.", ".said.", 1)
	for name, address := range want {
		if got := doc.Channels[name].Address; got != address {
			t.Errorf("channel %s has the address %q, want %q", name, got, address)
		}
	}
	for name, c := range doc.Channels {
		if want[name] == "" {
			t.Errorf("channel %s is not checked in this test: add it", name)
		}
		for _, p := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(c.Address, -1) {
			if _, ok := c.Parameters[p[1]]; !ok {
				t.Errorf("channel %s does not declare {%s}", name, p[1])
			}
		}
	}
	// The subscriptions of the followers must match the subjects that the streams republish to.
	if got := s.Feed(tenant, thread, process); got != strings.Replace(want["feed"], "{class}.{name}", "*.*", 1) {
		t.Errorf("Feed subscribes to %q", got)
	}
	if got := s.Tail(tenant, thread, process); got != strings.Replace(want["tail"], "{stream}", "*", 1) {
		t.Errorf("Tail subscribes to %q", got)
	}
	if got := s.Said(tenant, thread); got != strings.NewReplacer(process, "*", "{role}", "*").Replace(want["said"]) {
		t.Errorf("Said subscribes to %q", got)
	}
}

// Every subject that Subjects and StreamSubjects build is on a plane of the file.
func TestAsyncAPIHasEveryPlane(t *testing.T) {
	doc, _ := readAsyncAPI(t)
	planes := map[string]bool{}
	for _, c := range doc.Channels {
		if strings.HasPrefix(c.Address, "sluice.") {
			planes[strings.Split(c.Address, ".")[4]] = true
		}
	}
	for _, subjects := range []any{NewSubjects("c"), NewSubjects("c").Streams()} {
		v := reflect.ValueOf(subjects)
		for m := range v.Type().Methods() {
			if m.Type.NumOut() != 1 || m.Type.Out(0).Kind() != reflect.String || m.Name == "PartitionCommands" || m.Name == "PartitionCancels" {
				continue // parsers, and the partitions inside CMD, which no client uses
			}
			args := []reflect.Value{v}
			for i := range m.Type.NumIn() - 1 {
				args = append(args, reflect.ValueOf("x").Convert(m.Type.In(i+1)))
			}
			subject := m.Func.Call(args)[0].String()
			if plane := strings.Split(subject, ".")[4]; !planes[plane] {
				t.Errorf("%s builds %s: the plane %s is not in %s", m.Name, subject, plane, asyncAPIFile)
			}
		}
	}
}

func TestAsyncAPIHasTheHeadersAndEnums(t *testing.T) {
	doc, _ := readAsyncAPI(t)
	have := map[string]bool{}
	for _, m := range doc.Components.Messages {
		for name := range m.Headers.Properties {
			have[name] = true
		}
	}
	for _, name := range []string{
		headerInbox, headerSent, headerType, headerWorker, headerReason, headerChunk, headerOffset, headerEpoch, headerStored, headerStdinEnd,
		headerAttempt, headerVerdict,
		headerSequence, headerLastSequence, headerSubject,
	} {
		if !have[name] {
			t.Errorf("no message has the header %s", name)
		}
	}
	var ops, streams, roles []string
	for _, op := range schemas.Ops() {
		ops = append(ops, string(op))
	}
	for _, s := range schemas.Streams() {
		streams = append(streams, string(s))
	}
	for _, r := range schemas.Roles() {
		roles = append(roles, string(r))
	}
	if got := doc.Components.Parameters["role"].Enum; !slices.Equal(got, roles) {
		t.Errorf("role is one of %v, want %v", got, roles)
	}
	if got := doc.Components.Parameters["op"].Enum; !slices.Equal(got, ops) {
		t.Errorf("op is one of %v, want %v", got, ops)
	}
	if got := doc.Components.Parameters["stream"].Enum; !slices.Equal(got, streams) {
		t.Errorf("stream is one of %v, want %v", got, streams)
	}
}

// Every reference exists, and every JSON Schema of a message is referenced.
func TestAsyncAPIReferencesExist(t *testing.T) {
	_, body := readAsyncAPI(t)
	var tree map[string]any
	testkit.Must(t, yaml.Unmarshal([]byte(body), &tree))
	refs := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$ref: "([^"]+)"`).FindAllStringSubmatch(body, -1) {
		refs[m[1]] = true
	}
	if len(refs) < 20 {
		t.Fatalf("%d references were found, want at least 20", len(refs))
	}
	for ref := range refs {
		path, local := strings.CutPrefix(ref, "#/")
		if !local {
			if _, err := os.Stat(filepath.Join(filepath.Dir(asyncAPIFile), ref)); err != nil {
				t.Error(err)
			}
			continue
		}
		var at any = tree
		for key := range strings.SplitSeq(path, "/") {
			node, _ := at.(map[string]any)
			at = node[key]
		}
		if at == nil {
			t.Errorf("reference %s does not exist", ref)
		}
	}
	for _, name := range []string{"command", "event", "error", "signal", "kill", "cancel", "stop", "start", "renew", "sync", "session-reply", "place-request", "place-reply", "message", "template"} {
		if !refs["./json/"+name+".json"] {
			t.Errorf("json/%s.json is not referenced", name)
		}
	}
}
