package allow

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

// others is the name of the entry of the tenants that have none.
const others = "*"

// lists is the content of a file.
type lists struct {
	Tenants map[string]entry `json:"tenants"`
}

// entry is what a tenant may use. A nil list restricts nothing; an empty one allows nothing.
type entry struct {
	Templates []string `json:"templates"`
	Networks  []string `json:"networks"`
	Images    []string `json:"images"`
}

// Lists are the allow-lists of a worker. They are safe for concurrent use.
type Lists struct {
	file    string
	current atomic.Pointer[lists] // nil without a file
}

// New reads a file; an empty name is no file. Errors: those of Read.
func New(file string) (*Lists, error) {
	l := &Lists{file: file}
	use, err := l.Read()
	if err != nil {
		return nil, err
	}
	use()
	return l, nil
}

// Read reads the file again. The lists in it are in use once use is called. Errors: template.Problems, not_found, unavailable.
func (l *Lists) Read() (use func(), err error) {
	if l.file == "" {
		return func() {}, nil
	}
	next := new(lists)
	if err := template.DecodeFile(l.file, "allow-list", next, next.validate); err != nil {
		return nil, err
	}
	return func() { l.current.Store(next) }, nil
}

// validate checks the names and patterns of a file. Errors: invalid_argument, with the detail path.
func (l *lists) validate() error {
	if l.Tenants == nil {
		return invalid("tenants", "missing: write `tenants: {\"*\": {}}` to restrict nothing")
	}
	for tenant, e := range l.Tenants {
		path := "tenants." + tenant
		if tenant != others && !schemas.ValidID(tenant) {
			return invalid(path, "%q is no name of a tenant, and not \"*\"", tenant)
		}
		for _, n := range e.Networks {
			if !slices.Contains(schemas.Networks(), schemas.Network(n)) {
				return invalid(path+".networks", "unknown network %q: use none or host", n)
			}
		}
		for _, t := range e.Templates {
			if !schemas.ValidID(strings.ReplaceAll(t, "*", "x")) {
				return invalid(path+".templates", "%q is no name of a template, and no pattern of one", t)
			}
		}
		for _, i := range e.Images {
			if err := checkPattern(i); err != "" {
				return invalid(path+".images", "%q: %s", i, err)
			}
		}
	}
	return nil
}

func invalid(path, format string, args ...any) error {
	return schemas.Errorf(schemas.CodeInvalidArgument, format, args...).With("path", path)
}

// Check refuses what a tenant may not use: a template, the network of its sandboxes, and the image that the caller named; empty for the
// operator's own. Errors: permission_denied; invalid_argument for an image that is no reference.
func (l *Lists) Check(tenant, name string, network schemas.Network, image string) error {
	e, key := entry{}, tenant
	if current := l.current.Load(); current != nil {
		var listed bool
		if e, listed = current.Tenants[tenant]; !listed {
			key = others
			if e, listed = current.Tenants[others]; !listed {
				return denied("tenant", "tenant %s is in no allow-list of this worker: the operator adds an entry for it, or for \"*\", to the file of --allow", tenant)
			}
		}
	}
	if e.Templates != nil && !slices.ContainsFunc(e.Templates, func(p string) bool { return policy.Matches(p, name) }) {
		return denied("template", "tenant %s may not use template %s: the operator adds it to the templates of %q in the file of --allow", tenant, name, key)
	}
	if e.Networks != nil && !slices.Contains(e.Networks, string(network)) {
		return denied("network", "tenant %s may not use network %s, which template %s has: the operator adds it to the networks of %q in the file of --allow", tenant, network, name, key)
	}
	if image == "" {
		return nil
	}
	return e.checkImage(tenant, key, image)
}

func denied(path, format string, args ...any) error {
	return schemas.Errorf(schemas.CodePermissionDenied, format, args...).With("path", path)
}
