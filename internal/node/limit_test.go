package node

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 10, 15: a worker that cannot record at its start what was lost, because EVT is full, ended with exit code 125. It waits.
func TestFullStreamPasses(t *testing.T) {
	o := newOutage(t)
	n := New(Config{Worker: "w1"}, o.connect(o))
	full := schemas.Errorf(schemas.CodeLimitExceeded, "record process.lost: maximum bytes exceeded")
	testkit.Equal(t, "a full stream passes", n.passes(full), true)
	testkit.Equal(t, "a full disk passes", n.passes(errors.Join(full, &fs.PathError{Err: fs.ErrInvalid})), false)
	testkit.Equal(t, "a conflict passes", n.passes(schemas.Errorf(schemas.CodeConflict, "in use")), false)
}
