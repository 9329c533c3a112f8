package hooks_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// BenchmarkFourHooks measures four empty hooks, with their events encoded but not stored.
func BenchmarkFourHooks(b *testing.B) {
	c, err := hooks.New(hooks.Config{
		Worker: "w1", Hooks: map[string]any{"nothing": messageHook(func(context.Context, *hooks.Call) error { return nil })},
		Record: func(_ context.Context, ev *schemas.Event) { _, _ = ev.Encode() }, // these events always encode
	})
	testkit.Must(b, err)
	nothing := schemas.HookSpec{Builtin: "nothing"}
	tpl := template(schemas.PhaseMessage, nothing, nothing, nothing, nothing)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := c.Run(b.Context(), tpl, data(schemas.PhaseMessage, fmt.Sprint(i)), "", nil); err != nil {
			b.Fatal(err)
		}
	}
}
