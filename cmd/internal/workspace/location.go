package workspace

import (
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// Location is where a thread's workspace is kept: the template's location with {tenant}, {agent} and {thread} filled in. Errors:
// invalid_argument for a template without one, one that all threads would share, an unknown name in braces, and ids that are none.
func Location(t *schemas.Template, tenant, thread string) (string, error) {
	if t.Sync == nil || t.Sync.Location == "" {
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "template %s: sync.location is missing", t.Name)
	}
	if !strings.Contains(t.Sync.Location, "{thread}") {
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "template %s: sync.location has no {thread}: all threads would share one workspace", t.Name)
	}
	// What is filled in becomes part of a path: an id can neither leave its folder nor be empty.
	for field, id := range map[string]string{"tenant": tenant, "agent": t.Name, "thread": thread} {
		if err := schemas.CheckID(field, id); err != nil {
			return "", err
		}
	}
	location := strings.NewReplacer("{tenant}", tenant, "{agent}", t.Name, "{thread}", thread).Replace(t.Sync.Location)
	if strings.ContainsAny(location, "{}") {
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "template %s: sync.location %q: {tenant}, {agent} and {thread} are what can be filled in", t.Name, t.Sync.Location)
	}
	return location, nil
}
