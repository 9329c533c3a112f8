package e2e

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
)

// pipeline is examples/pipeline with a `sluice up` on the S3 server.
type pipeline struct {
	t         *testing.T
	bin       string
	templates string
	env       []string
}

const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func newPipeline(t *testing.T) *pipeline {
	t.Helper()
	p := &pipeline{t: t, bin: t.TempDir(), templates: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", p.bin, "./cmd/sluice", "./examples/pipeline/...")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	yaml, err := os.ReadFile("../../examples/pipeline/templates/pipeline.yaml")
	testkit.Must(t, err)
	place := "s3://" + gateway.Bucket + "/" + rand.Text() + "/"
	edited := strings.NewReplacer("http://127.0.0.1:9000", server.Endpoint, "s3://workspaces/", place).Replace(string(yaml))
	testkit.Must(t, os.WriteFile(filepath.Join(p.templates, "pipeline.yaml"), []byte(edited), 0o600))
	return p
}

// child is a running program.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Reader
}

// start runs a program until the end of the test, or until it is stopped.
func (p *pipeline) start(name string, args ...string) *child {
	p.t.Helper()
	cmd := exec.CommandContext(testkit.Context(p.t), filepath.Join(p.bin, name), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env, cmd.Stderr = append(os.Environ(), p.env...), p.t.Output()
	out, err := cmd.StdoutPipe()
	testkit.Must(p.t, err)
	testkit.Must(p.t, cmd.Start())
	c := &child{p.t, cmd, bufio.NewReader(out)}
	p.t.Cleanup(func() { c.end(syscall.SIGTERM) })
	return c
}

// end sends a signal, and waits for the end.
func (c *child) end(sig syscall.Signal) {
	if c.cmd.ProcessState != nil {
		return
	}
	_ = c.cmd.Process.Signal(sig) // it may have ended
	_, _ = io.Copy(io.Discard, c.lines)
	_ = c.cmd.Wait() // it reports the signal
}

// await reads lines until one begins with this text, and returns the rest of it.
func (c *child) await(prefix string) string {
	c.t.Helper()
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s ended without printing %q", c.cmd.Path, prefix)
		}
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// awaitAll reads lines until all of these were printed, in any order.
func (c *child) awaitAll(want ...string) {
	c.t.Helper()
	for len(want) > 0 {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s ended without printing %q", c.cmd.Path, want)
		}
		want = slices.DeleteFunc(want, func(w string) bool { return w == strings.TrimSpace(line) })
	}
}

// up runs `sluice up` on a new data folder, as on a new machine.
func (p *pipeline) up() *child {
	p.t.Helper()
	data := testkit.ShortDir(p.t)
	c := p.start("sluice", "--data", data, "up", "--provider", "local", "--listen", "127.0.0.1:0", "--http", "off", "--templates", p.templates, "--log-level", "warn")
	url, _, _ := strings.Cut(c.await("sluice is up: "), ",")
	token, err := os.ReadFile(filepath.Join(data, "token"))
	testkit.Must(p.t, err)
	p.env = []string{"SLUICE_NATS_URL=" + url, "SLUICE_NATS_TOKEN=" + strings.TrimSpace(string(token)), "TRACEPARENT=" + traceParent}
	return c
}

// sluice runs the command line, and returns its output and its exit code.
func (p *pipeline) sluice(args ...string) (stdout string, code int) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(p.bin, "sluice"), args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), p.env...), p.t.Output()
	out, err := cmd.Output()
	if cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// await waits for the newest event of a type in a thread, after n earlier ones.
func (p *pipeline) await(thread string, typ schemas.EventType, n int) *schemas.Event {
	p.t.Helper()
	c := p.start("sluice", "events", "--json", "-f", "--thread", thread)
	defer c.end(syscall.SIGTERM)
	for {
		line, err := c.lines.ReadString('\n')
		testkit.Must(p.t, err)
		ev, err := schemas.DecodeEvent([]byte(line))
		testkit.Must(p.t, err)
		if ev.Type == typ {
			if n--; n < 0 {
				return ev
			}
		}
	}
}

func (p *pipeline) finish(thread string, n int) (*schemas.Event, schemas.StreamFinish) {
	p.t.Helper()
	ev := p.await(thread, schemas.TypeStreamFinished, n)
	var f schemas.StreamFinish
	testkit.Must(p.t, ev.Decode(&f))
	return ev, f
}

// awaitEmptyQueue waits until CMD has no command.
func (p *pipeline) awaitEmptyQueue() {
	p.t.Helper()
	for ctx := testkit.Context(p.t); ; testkit.Must(p.t, ctx.Err()) {
		out, _ := p.sluice("status", "--json")
		var status schemas.Status
		testkit.Must(p.t, json.Unmarshal([]byte(out), &status))
		if slices.ContainsFunc(status.Streams, func(s schemas.StreamStatus) bool { return strings.HasSuffix(s.Name, "-CMD") && s.Messages == 0 }) {
			return
		}
	}
}

// Ten minutes 12, 13: the story of examples/pipeline: S3 pull at a cold start, moderation over NATS, agent, push, and a second step that a
// plain NATS consumer chains. It is killed between publish and ack, and the step runs once.
func TestPipeline(t *testing.T) {
	p := newPipeline(t)
	first := p.up()
	moderate := p.start("moderate")
	moderate.await("ready")
	out, code := p.sluice("message", "--thread", "report", "--template", "writer", "a first line")
	testkit.Equal(t, "first answer", []any{out, code}, []any{"a first line\n", 0})
	_, before := p.finish("report", 0)
	if before.Version == "" {
		t.Fatalf("the first draft is not stored: %+v", before)
	}
	moderate.end(syscall.SIGTERM)
	first.end(syscall.SIGTERM)

	// On a new machine, the cold start pulls the draft.
	p.up()
	p.start("moderate").await("ready")
	out, code = p.sluice("message", "--thread", "report", "--template", "writer", "--label", "user=ann", "a second line")
	testkit.Equal(t, "second answer", []any{out, code}, []any{"a first line\na second line\n", 0})
	var pulled schemas.SyncReport
	testkit.Must(t, p.await("report", schemas.TypeSyncPulled, 0).Decode(&pulled))
	testkit.Equal(t, "pulled", []any{pulled.Version, pulled.Files}, []any{before.Version, int64(1)})
	draft, drafted := p.finish("report", 0)
	testkit.Equal(t, "labels and trace of the draft", draft.Origin, schemas.Origin{Labels: map[string]string{"user": "ann"}, TraceParent: traceParent})
	_, code = p.sluice("message", "--thread", "report", "something forbidden")
	testkit.Equal(t, "exit code of a forbidden prompt", code, schemas.ExitSluiceFailed)
	_, code = p.sluice("message", "--thread", "report", "fail")
	testkit.Equal(t, "exit code of an agent that fails", code, 1)
	p.finish("report", 2)

	// The chain is killed between publish and ack, and started again.
	next := p.start("next", "--ack-wait", "1s", "--before-ack", "1h")
	next.await("ready")
	thread := next.await("queued ")
	testkit.Equal(t, "thread of the review", thread, "review-"+draft.Process)
	reviewed, review := p.finish(thread, 0)
	next.end(syscall.SIGKILL)
	next = p.start("next", "--ack-wait", "1s")
	// The other events need not wait for the one that is delivered again.
	next.awaitAll("queued "+thread, "acked "+thread, "dead letter: the writer ended with 125", "dead letter: the writer ended with 1")

	// The second command of the key is answered by the record of the first.
	p.awaitEmptyQueue()
	out, code = p.sluice("exec", "--no-stdin", "--thread", thread, "--", "sh", "-c", "cat runs words draft.md")
	testkit.Equal(t, "files of step two", []any{out, code}, []any{traceParent + "\n6\na first line\na second line\n", 0})
	out, _ = p.sluice("events", "--json", "--thread", thread)
	accepted := 0
	for line := range strings.Lines(out) {
		var ev schemas.Event
		testkit.Must(t, json.Unmarshal([]byte(line), &ev))
		if ev.Type == schemas.TypeProcessAccepted && ev.Process == reviewed.Process {
			accepted++
		}
		if ev.Process == "" || ev.Process == reviewed.Process { // of the review, from the creation of its session on
			testkit.Equal(t, "origin of "+string(ev.Type), ev.Origin, reviewed.Origin)
			testkit.Equal(t, "template of "+string(ev.Type), ev.Template, "reviewer")
		}
	}
	testkit.Equal(t, "runs of the review", accepted, 1)
	testkit.Equal(t, "labels and trace of the review", reviewed.Origin, schemas.Origin{
		Labels: map[string]string{"user": "ann", "source": "report"}, TraceParent: traceParent,
	})
	if review.Version == "" || review.Version == drafted.Version {
		t.Errorf("version of the review = %q, want one of its own", review.Version)
	}
}

// An example needs the contract alone.
func TestPipelineImportsNoSluice(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./examples/pipeline/...")
	list.Dir = "../.."
	out, err := list.Output()
	testkit.Must(t, err)
	if i := slices.IndexFunc(strings.Fields(string(out)), func(pkg string) bool {
		return strings.HasPrefix(pkg, "github.com/sluice-dev/sluice/") && !strings.Contains(pkg, "/examples/")
	}); i >= 0 {
		t.Errorf("the example imports %s", strings.Fields(string(out))[i])
	}
}
