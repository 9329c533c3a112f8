package jail

import (
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
)

// box is a jail.
type box struct{ *link.Sandbox }

var _ sandbox.Attached = (*box)(nil)
