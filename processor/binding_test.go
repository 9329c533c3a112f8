package processor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// reloaded are templates that a test changes while the worker runs.
type reloaded struct {
	mu sync.Mutex
	templates
}

func (r *reloaded) Template(name string) (*schemas.Template, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.templates.Template(name)
}

func (r *reloaded) load(t *schemas.Template) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.templates[t.Name] = t
}

// broken is the variable of a template of which this worker can make no sandbox.
const broken = "BROKEN"

// failBroken makes the provider fail for broken templates.
func (r *rig) failBroken() {
	create := r.provider.Provider.Create
	r.provider.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		if spec.Env[broken] != "" {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "broken")
		}
		return create(ctx, spec)
	}
}

// Ten minutes 8: until something has run, a thread's session takes the template and the provider of the next request, and stays the
// same session. After that, the error names the way out.
func TestSessionThatRanNothingChanges(t *testing.T) {
	bad := &schemas.Template{Name: "bad", Env: map[string]string{broken: "1"}}
	c, w := newRig(t, with(&schemas.Template{Name: "one"}, &schemas.Template{Name: "two"}, bad), func(cfg *processor.Config) {
		cfg.Providers["other"] = cfg.Providers["local"]
	})
	w.failBroken()
	first, err := c.place(schemas.PlaceRequest{Template: "one", User: "ann"})
	c.must(err)
	for i, durable := range []bool{false, true} {
		cmd := command(fmt.Sprint("bad", i), sh(":"))
		cmd.Template = "bad"
		_, answers := w.deliver(cmd, durable, 1)
		wantFields(t, c.terminal(answers), failed(schemas.CodeInvalidArgument))
		placed, err := c.place(schemas.PlaceRequest{Template: "two", Provider: "other"})
		c.must(err)
		wantFields(t, placed.Session, schemas.Session{ID: first.Session.ID, User: "ann", Template: "two", Provider: "other"})
		equal(t, "created by the second request", placed.Created, false)
	}
	wantFields(t, c.exec(command("runs", sh("echo ran"))), schemas.Result{Stdout: "ran\n", Success: true})
	w.Sessions().Find("default", "t").Flush(c.ctx)
	wantFields(t, c.session(), schemas.Session{ID: first.Session.ID, Template: "two", Provider: "other", Bound: true})
	cmd := command("late", sh(":"))
	cmd.Template = "one"
	r := c.exec(cmd)
	wantFields(t, r, failed(schemas.CodeConflict))
	testkit.Contains(t, "error", r.Error.Message, "`sluice session stop --thread t`")
}

// Ten minutes 8: a request that reaches another worker leaves it to the owner whether the session changes.
func TestOwnerDecidesWhetherItsSessionChanges(t *testing.T) {
	c, _ := newRig(t, with(&schemas.Template{Name: "one"}, &schemas.Template{Name: "two"}))
	placed, err := c.place(schemas.PlaceRequest{Template: "one"})
	c.must(err)
	other := c.worker("w2", with(&schemas.Template{Name: "one"}, &schemas.Template{Name: "two"}))
	wantFields(t, other.HandlePlace(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: "t", Template: "two"}), schemas.PlaceReply{Worker: "w1"})
	for i := range 4 { // either worker gets it
		name := []string{"two", "one"}[i%2]
		placed, err := c.place(schemas.PlaceRequest{Template: name})
		c.must(err)
		wantFields(t, placed.Session, schemas.Session{Template: name, Owner: "w1"})
	}
	wantFields(t, c.session(), schemas.Session{ID: placed.Session.ID, Template: "one"})
}

// Ten minutes 8: a template that was mended is used by sessions that never had a sandbox, with the next command.
func TestReloadedTemplateReplacesABrokenOne(t *testing.T) {
	store := &reloaded{templates: templates{"default": {Name: "default"}, "mine": {Name: "mine", Env: map[string]string{broken: "1"}}}}
	c, w := newRig(t, func(cfg *processor.Config) { cfg.Templates = store })
	w.failBroken()
	run := func(key, script string) *schemas.Result {
		cmd := command(key, sh(script))
		cmd.Template = "mine"
		return c.exec(cmd)
	}
	wantFields(t, run("first", ":"), failed(schemas.CodeInvalidArgument))
	id := c.session().ID
	store.load(&schemas.Template{Name: "mine", Env: map[string]string{"WORD": "mended"}})
	wantFields(t, run("second", "echo $WORD"), schemas.Result{Stdout: "mended\n", Success: true})
	equal(t, "session", c.session().ID, id)
	store.load(&schemas.Template{Name: "mine", Env: map[string]string{"WORD": "newer"}})
	wantFields(t, run("third", "echo $WORD"), schemas.Result{Stdout: "mended\n", Success: true})
}

// Commands that ask for different templates at once: the session is bound by one of them, and each command runs under its own template
// or gets a conflict.
func TestConcurrentRequestsBindASessionOnce(t *testing.T) {
	env := func(name string) *schemas.Template {
		return &schemas.Template{Name: name, Env: map[string]string{"WORD": name}}
	}
	c, w := newRig(t, with(env("one"), env("two"), env("three")))
	_, err := c.place(schemas.PlaceRequest{})
	c.must(err)
	names := []string{"one", "two", "three"}
	calls := make([]*events.Call, 12)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			cmd := command(fmt.Sprint("k", i), sh("echo $WORD"))
			cmd.Template = names[i%len(names)]
			var err error
			if calls[i], err = c.conn.Send(c.ctx, schemas.DefaultTenant, cmd); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	bound := ""
	for i, call := range calls {
		r := c.end(call)
		call.Close()
		if !r.Success {
			wantFields(t, r, failed(schemas.CodeConflict))
			continue
		}
		equal(t, "output", r.Stdout, names[i%len(names)]+"\n")
		bound = names[i%len(names)]
	}
	w.Sessions().Find("default", "t").Flush(c.ctx)
	wantFields(t, c.session(), schemas.Session{Template: bound, Bound: true})
}
