package hooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 11: a hook's data is one line, so that `read` of a shell succeeds on it.
func TestHookDataIsOneLine(t *testing.T) {
	c := newChains(t, newRecorder(), hooks.Config{})
	var stdin []byte
	tpl := template(schemas.PhaseColdStart, schemas.HookSpec{Command: []string{"check"}})
	_, err := c.Run(t.Context(), tpl, data(schemas.PhaseColdStart, "s1"), "", func(_ context.Context, _ []string, in []byte) error {
		stdin = in
		return nil
	})
	testkit.Must(t, err)
	testkit.Equal(t, "JSON", json.Valid(stdin), true)
	testkit.Equal(t, "index of the first line break", bytes.IndexByte(stdin, '\n'), len(stdin)-1)
}
