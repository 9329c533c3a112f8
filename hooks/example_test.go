package hooks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

// audit is a Go hook: its methods say in which phases it runs.
type audit struct{}

// OnMessage prints each prompt.
func (audit) OnMessage(_ context.Context, call *hooks.Call) error {
	fmt.Println("audit:", call.Conversation.Thread, "received", call.Message.Text)
	return nil
}

// Register a Go hook by name, and refer to it in a template. A message that is delivered again does not run it again.
func Example() {
	chains, err := hooks.New(hooks.Config{
		Worker: "w1", Hooks: map[string]any{"audit": audit{}},
		Record: func(_ context.Context, ev *schemas.Event) { fmt.Println(ev.Type) }, // a worker publishes the event
	})
	if err != nil {
		panic(err)
	}
	template := &schemas.Template{Name: "coder", Hooks: map[schemas.Phase][]schemas.HookSpec{
		schemas.PhaseMessage: {{Builtin: "audit"}},
	}}
	for range 2 {
		done, err := chains.Run(context.Background(), template, schemas.HookData{
			Phase: schemas.PhaseMessage, Occasion: "p1", Message: &schemas.Message{Text: "hello"},
			Conversation: schemas.Conversation{Tenant: "default", Thread: "t1"},
		}, "", nil)
		fmt.Println(done.Failed, err)
	}
	// Output:
	// hook.started
	// audit: t1 received hello
	// hook.finished
	// [] <nil>
	// [] <nil>
}

// A receiver of an HTTP hook computes the signature and compares it.
func ExampleSign() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		fmt.Println(hooks.Sign("secret", r.Header.Get(hooks.HeaderTimestamp), body) == r.Header.Get(hooks.HeaderSignature))
	}))
	defer server.Close()
	chains, err := hooks.New(hooks.Config{
		Worker: "w1", Private: true, // the server is on this machine
		Record: func(context.Context, *schemas.Event) {},
		Secret: func(schemas.SecretRef) (string, error) { return "secret", nil },
	})
	if err != nil {
		panic(err)
	}
	template := &schemas.Template{Name: "coder", Hooks: map[schemas.Phase][]schemas.HookSpec{
		schemas.PhaseTerminate: {{URL: server.URL, Secret: &schemas.SecretRef{Env: "SLUICE_SECRET_HOOKS"}}},
	}}
	done, err := chains.Run(context.Background(), template, schemas.HookData{Phase: schemas.PhaseTerminate, Occasion: "s1.1"}, "", nil)
	fmt.Println(done.Failed, err)
	if err := chains.Close(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// true
	// [] <nil>
}
