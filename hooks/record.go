package hooks

import (
	"context"
	"encoding/json"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// record makes an event of this worker and has it stored, also where the occasion was cut short.
func (c *Chains) record(ctx context.Context, typ schemas.EventType, call *Call, data any) {
	body, err := json.Marshal(data)
	if err != nil {
		body, _ = json.Marshal(schemas.Errorf(schemas.CodeInternal, "encode %s: %v", typ, err)) // strings alone
	}
	ev := &schemas.Event{
		SpecVersion: schemas.EventSpecVersion, ID: ulid.Make().String(), Source: c.cfg.Worker, Type: typ, Subject: call.Conversation.Thread,
		Time: time.Now().UTC(), Tenant: call.Conversation.Tenant, Thread: call.Conversation.Thread, Session: call.Conversation.Session, Data: body,
	}
	if call.Phase == schemas.PhaseMessage || call.Phase == schemas.PhaseStreamFinish {
		ev.Process, ev.Subject = call.Occasion, call.Occasion
	}
	c.cfg.Record(context.WithoutCancel(ctx), ev)
}
