package schemas

import (
	"path"
	"strings"
)

// The places of a location that are filled in.
const (
	placeTenant = "{tenant}"
	placeAgent  = "{agent}"
	placeThread = "{thread}"
)

const fileScheme, s3Scheme = "file://", "s3://"

// For is the location of one thread's workspace. No two threads of one template have the same, nor one within the other's:
// every name is a valid id and a segment of its own, or beside fixed text. Errors: invalid_argument for a name that is no id,
// for a location that is not valid, and for a tenant other than [DefaultTenant] where the location has no {tenant}.
func (s *TemplateSync) For(tenant, agent, thread string) (string, error) {
	if err := s.validateLocation(); err != nil {
		return "", err
	}
	for _, id := range []struct{ field, value string }{{"tenant", tenant}, {"agent", agent}, {"thread", thread}} {
		if err := CheckID(id.field, id.value); err != nil {
			return "", err
		}
	}
	if tenant != DefaultTenant && !strings.Contains(s.Location, placeTenant) {
		return "", invalid("sync.location", "tenant %s would share workspaces with others: put %s into it", tenant, placeTenant)
	}
	return strings.NewReplacer(placeTenant, tenant, placeAgent, agent, placeThread, thread).Replace(s.Location), nil
}

func (s *TemplateSync) validate() error {
	if s == nil {
		return nil
	}
	if err := s.validateLocation(); err != nil {
		return err
	}
	if s.Endpoint != "" {
		if err := checkURL("sync.endpoint", s.Endpoint); err != nil {
			return err
		}
		if strings.HasPrefix(s.Location, fileScheme) {
			return invalid("sync.endpoint", "a folder has none")
		}
	}
	if err := oneOf("sync.layout", s.Layout, SyncLayouts()); err != nil {
		return err
	}
	return oneOf("sync.on_conflict", s.OnConflict, SyncConflicts())
}

func (s *TemplateSync) validateLocation() error {
	const at = "sync.location"
	if s.Location == "" {
		return invalid(at, "missing: s3://bucket/prefix/%s or file:///folder/%s", placeThread, placeThread)
	}
	if err := checkPath(at, s.Location); err != nil {
		return err
	}
	folder, isFile := strings.CutPrefix(s.Location, fileScheme)
	rest, isS3 := strings.CutPrefix(s.Location, s3Scheme)
	bucket, prefix, _ := strings.Cut(rest, "/")
	switch {
	case isFile && strings.HasPrefix(folder, "/") && folder != "/":
		prefix = folder[1:]
	case isS3 && bucket != "" && !strings.ContainsAny(bucket, "{}"):
	default:
		return invalid(at, "%.60q is neither s3://bucket/prefix nor file:///folder", s.Location)
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if path.Clean("/"+prefix) != "/"+prefix {
		return invalid(at, "it holds an empty segment, . or ..")
	}
	return checkSegments(at, strings.Split(prefix, "/"))
}

// checkSegments makes sure that names of different threads give different places: in {tenant}-{thread}, a and b-c would give
// what a-b and c give.
func checkSegments(at string, segments []string) error {
	places := []string{placeTenant, placeAgent, placeThread}
	seen := map[string]bool{}
	for _, segment := range segments {
		inside := 0
		for _, place := range places {
			n := strings.Count(segment, place)
			inside += n
			seen[place] = seen[place] || n > 0
			segment = strings.ReplaceAll(segment, place, "")
		}
		if inside > 1 {
			return invalid(at, "two of %v between two slashes: put a slash between them", places)
		}
		if strings.ContainsAny(segment, "{}") {
			return invalid(at, "only %v are filled in", places)
		}
	}
	if !seen[placeThread] {
		return invalid(at, "no %s in it: all threads would share one workspace", placeThread)
	}
	return nil
}

// SyncLayouts lists the values of [TemplateSync].Layout.
func SyncLayouts() []string { return []string{"packed", "plain"} }

// SyncConflicts lists the values of [TemplateSync].OnConflict.
func SyncConflicts() []string { return []string{"fail", "local", "remote", "both"} }
