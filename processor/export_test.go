package processor

import (
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/run"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
)

// Config returns the worker's configuration, with its defaults.
func (w *Worker) Config() Config { return w.cfg }

// Publisher returns the owner of the worker's fence.
func (w *Worker) Publisher() *publisher.Publisher { return w.publisher }

// Sessions returns the owner of the worker's sessions.
func (w *Worker) Sessions() *session.Sessions { return w.sessions }

// Runs returns the owner of the worker's processes.
func (w *Worker) Runs() *run.Runs { return w.runs }

// Timeouts returns the timeouts to change.
func (c *Config) Timeouts() *work.Timeouts { return &c.timeouts }
