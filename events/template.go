package events

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// templatePrefix begins the keys of templates in the state bucket.
const templatePrefix = "template."

// maxListedTemplates is how many templates a list may hold: a cell is a few servers' worth of them.
const maxListedTemplates = 10_000

// SaveTemplates writes the templates that differ from what is stored, for callers to read. One that another worker has by the
// same name is written over: workers of a cell are meant to have the same. Errors: unavailable.
func (c *Conn) SaveTemplates(ctx context.Context, templates []*schemas.Template) error {
	stored, err := c.storedTemplates(ctx)
	if err != nil {
		return err
	}
	kv, err := c.bucket(ctx, c.names.state)
	if err != nil {
		return err
	}
	for _, t := range templates {
		body, err := json.Marshal(t)
		if err != nil {
			return schemas.Errorf(schemas.CodeInternal, "encode template %s: %w", t.Name, err)
		}
		if bytes.Equal(stored[t.Name], body) {
			continue
		}
		if _, err := kv.Put(ctx, templatePrefix+t.Name, body); err != nil {
			return wrap(err, "save template "+t.Name)
		}
	}
	return nil
}

// Template reads the template of this name. Errors: invalid_argument, not_found, unavailable.
func (c *Conn) Template(ctx context.Context, name string) (*schemas.Template, error) {
	if err := schemas.CheckID("template", name); err != nil {
		return nil, err
	}
	kv, err := c.bucket(ctx, c.names.state)
	if err != nil {
		return nil, err
	}
	entry, err := kv.Get(ctx, templatePrefix+name)
	if err != nil {
		return nil, wrap(err, "read template "+name)
	}
	t := new(schemas.Template)
	if err := json.Unmarshal(entry.Value(), t); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "template %s is unreadable: %w", name, err)
	}
	return t, nil
}

// Templates lists the templates that any worker has written, by name. Errors: unavailable.
func (c *Conn) Templates(ctx context.Context) ([]*schemas.Template, error) {
	stored, err := c.storedTemplates(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*schemas.Template, 0, len(stored))
	for _, body := range stored {
		t := new(schemas.Template)
		if json.Unmarshal(body, t) == nil { // one that a later version wrote in another way is left out
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *schemas.Template) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// storedTemplates are the bodies by name. It is a direct read, as [Conn.Workers] is.
func (c *Conn) storedTemplates(ctx context.Context) (map[string][]byte, error) {
	prefix := "$KV." + c.names.state + "." + templatePrefix
	msgs, _, err := c.directGet(ctx, "KV_"+c.names.state, directRequest{Seq: 1, NextBy: prefix + "*", Batch: maxListedTemplates})
	if err != nil {
		return nil, wrap(err, "list templates")
	}
	out := make(map[string][]byte, len(msgs))
	for _, m := range msgs {
		if len(m.data) > 0 { // a deleted key is a message without data
			out[strings.TrimPrefix(m.subject, prefix)] = m.data
		}
	}
	return out, nil
}
