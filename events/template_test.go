package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/schemas"
)

func TestTemplates(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		_, c := connected(t, listen)
		ctx := patient(t)
		list, err := c.Templates(ctx)
		must(t, err)
		if len(list) != 0 {
			t.Fatalf("a new cell has %v", list)
		}
		one := &schemas.Template{Name: "one", Env: map[string]string{"A": "b"}, Policy: &schemas.TemplatePolicy{Deny: []string{"rm"}}}
		two := &schemas.Template{Name: "two", Network: schemas.NetworkHost}
		must(t, c.SaveTemplates(ctx, []*schemas.Template{two, one}))
		list, err = c.Templates(ctx)
		must(t, err)
		if diff := cmp.Diff([]*schemas.Template{one, two}, list); diff != "" {
			t.Error(diff)
		}
		got, err := c.Template(ctx, "two")
		must(t, err)
		if diff := cmp.Diff(two, got); diff != "" {
			t.Error(diff)
		}
		_, err = c.Template(ctx, "three")
		wantCode(t, err, schemas.CodeNotFound)
		_, err = c.Template(ctx, "a.>")
		wantCode(t, err, schemas.CodeInvalidArgument)

		kv, err := c.bucket(ctx, c.names.state)
		must(t, err)
		revision := func(name string) uint64 {
			entry, err := kv.Get(ctx, templatePrefix+name)
			must(t, err)
			return entry.Revision()
		}
		first, second := revision("one"), revision("two")
		two.Description = "changed"
		must(t, c.SaveTemplates(ctx, []*schemas.Template{one, two}))
		if revision("one") != first {
			t.Error("a template that is the same was written again")
		}
		if revision("two") == second {
			t.Error("a template that changed was not written")
		}
	})
}
