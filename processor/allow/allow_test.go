package allow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/allow"
	"github.com/sluice-dev/sluice/schemas"
)

func file(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "allow.yaml")
	testkit.Must(t, os.WriteFile(path, []byte(body), 0o600))
	return path
}

func lists(t *testing.T, body string) *allow.Lists {
	t.Helper()
	l, err := allow.New(file(t, body))
	testkit.Must(t, err)
	return l
}

func TestListsOfTenants(t *testing.T) {
	t.Parallel()
	l := lists(t, "tenants:\n  acme: {templates: [default, 'doc*'], networks: [none]}\n  free: {}\n  none: {templates: []}\n")
	open := lists(t, "tenants: {acme: {networks: []}, '*': {templates: [default]}}")
	none, err := allow.New("")
	testkit.Must(t, err)
	for _, k := range []struct {
		lists            *allow.Lists
		tenant, template string
		network          schemas.Network
		refusal          string // a part of it; empty for none
	}{
		{l, "acme", "default", "none", ""},
		{l, "acme", "documents", "none", ""},
		{l, "acme", "codex", "none", `may not use template codex: the operator adds it to the templates of "acme"`},
		{l, "acme", "Default", "none", "template Default"},
		{l, "acme", "default", "host", `may not use network host, which template default has: the operator adds it to the networks of "acme"`},
		{l, "free", "codex", "host", ""},
		{l, "none", "default", "none", "template default"},
		{l, "other", "default", "none", "tenant other is in no allow-list"},
		{l, "*", "default", "none", "in no allow-list"},
		{open, "acme", "codex", "none", "network none"},
		{open, "other", "default", "host", ""},
		{open, "other", "codex", "host", `the templates of "*"`},
		{none, "other", "codex", "host", ""},
	} {
		err := k.lists.Check(k.tenant, k.template, k.network, "")
		if k.refusal == "" {
			testkit.Must(t, err)
			continue
		}
		testkit.WantCode(t, err, schemas.CodePermissionDenied)
		if !strings.Contains(err.Error(), k.refusal) {
			t.Errorf("%+v: error = %q, want it to contain %q", k, err, k.refusal)
		}
	}
}

func TestImagesOfTenants(t *testing.T) {
	t.Parallel()
	const denied, bad = string(schemas.CodePermissionDenied), string(schemas.CodeInvalidArgument)
	none, err := allow.New("")
	testkit.Must(t, err)
	hub := lists(t, "tenants: {a: {images: ['docker.io/library/*', ghcr.io/acme/tool, 'ghcr.io/acme/two:1*', sha256:abcd]}}")
	every := lists(t, "tenants: {a: {images: ['*', '127.0.0.1:5000/*', 'registry:5000/team/*']}}")
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for image, want := range map[string]struct{ none, hub, every string }{
		"debian":                              {"", "", ""},
		"debian:13":                           {"", "", ""},
		"library/debian":                      {"", "", ""},
		"docker.io/library/debian":            {"", "", ""},
		"index.docker.io/library/debian":      {"", "", ""},
		"evil/debian":                         {"", denied, ""},
		"docker.io/evil/debian":               {"", denied, ""},
		"docker.io.evil.com/library/debian":   {"", denied, ""},
		"ghcr.io/acme/tool":                   {"", "", ""},
		"ghcr.io/acme/tool:2":                 {"", "", ""},
		"ghcr.io/acme/tool" + digest:          {"", "", ""},
		"ghcr.io/acme/tools":                  {"", denied, ""},
		"ghcr.io/acme/tool/x":                 {"", denied, ""},
		"ghcr.io/acme/two:1.5":                {"", "", ""},
		"ghcr.io/acme/two:2":                  {"", denied, ""},
		"ghcr.io/acme/two":                    {"", denied, ""},
		"ghcr.io/acme/two:1" + digest:         {"", denied, ""}, // the engine reads the digest alone
		"abcd":                                {"", denied, ""}, // the beginning of an id
		"sha256:abcd":                         {"", "", ""},
		"sha256:abce":                         {"", denied, ""},
		digest[8:]:                            {"", denied, ""},
		"127.0.0.1:5000/x":                    {denied, denied, ""},
		"127.0.0.1:5001/x":                    {denied, denied, denied},
		"127.0.0.1/x":                         {denied, denied, denied},
		"10.0.0.1/x":                          {denied, denied, denied},
		"8.8.8.8/x":                           {denied, denied, denied},
		"[::1]:5000/x":                        {denied, denied, denied},
		"[::ffff:7f00:1]/x":                   {denied, denied, denied},
		"127.1:80/x":                          {denied, denied, denied},
		"0x7f.0x1:80/x":                       {denied, denied, denied},
		"2130706433:80/x":                     {denied, denied, denied},
		"localhost/x":                         {denied, denied, denied},
		"localhost:5000/x":                    {denied, denied, denied},
		"LOCALHOST:5000/x":                    {denied, denied, denied},
		"Registry/x":                          {denied, denied, denied},
		"registry:5000/x":                     {denied, denied, denied},
		"registry:5000/team/x":                {denied, denied, ""},
		"x.localhost/y":                       {denied, denied, denied},
		"metadata.google.internal/x":          {denied, denied, denied},
		"registry.home.arpa/x":                {denied, denied, denied},
		"quay.io:443/x":                       {"", denied, ""},
		"127.0.0.1.example.com:5000/x":        {"", denied, ""},
		"http://127.0.0.1/x":                  {bad, bad, bad},
		"Debian":                              {bad, bad, bad},
		"a b":                                 {bad, bad, bad},
		"127.0.0.1:5000/../x":                 {bad, bad, bad},
		"docker.io/library/../../127.0.0.1/x": {bad, bad, bad},
	} {
		for what, k := range map[string]struct {
			lists *allow.Lists
			want  string
		}{"no list": {none, want.none}, "some images": {hub, want.hub}, "every image": {every, want.every}} {
			if got := string(schemas.CodeOf(k.lists.Check("a", "default", "none", image))); got != k.want {
				t.Errorf("%s: %s: code = %q, want %q", what, image, got, k.want)
			}
		}
	}
	err = none.Check("a", "default", "none", "127.0.0.1:5000/x")
	if !strings.Contains(err.Error(), `the operator adds "127.0.0.1:5000/*" to the images of "a"`) {
		t.Errorf("error = %q, want the way out in it", err)
	}
}

func TestFilesAreRead(t *testing.T) {
	t.Parallel()
	for body, problem := range map[string]string{
		"":                                       "the file is empty",
		"tenant: {}":                             ":1: tenant: unknown field: use one of tenants",
		"{}":                                     ":1: tenants: missing",
		"tenants: {a: {image: [x]}}":             ":1: tenants.a.image: unknown field: use one of templates, networks, images",
		"tenants: {a: {}, a: {}}":                "given twice",
		"tenants:\n  a:":                         ":2: tenants.a: empty",
		"tenants: {a.b: {}}":                     `"a.b" is no name of a tenant`,
		"tenants: {'a*': {}}":                    `"a*" is no name of a tenant`,
		"tenants:\n  a:\n    networks: [bridge]": `:3: tenants.a.networks: unknown network "bridge": use none or host`,
		"tenants: {a: {templates: [a/b]}}":       `"a/b" is no name of a template`,
		"tenants: {a: {templates: default}}":     "want a list",
		"tenants: {a: {images: [debian]}}":       `"debian": name the registry`,
		"tenants: {a: {images: [acme/*]}}":       `"acme/*": name the registry`,
		"tenants: {}\n---\ntenants: {}":          ":3: a second document",
		"a: &a {}\ntenants: *a":                  "aliases are not supported",
		strings.Repeat("#", 200<<10):             "the limit is 131072",
	} {
		_, err := allow.New(file(t, body))
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		if err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%.60q: error = %q, want it to contain %q", body, err, problem)
		}
	}
	_, err := allow.New(filepath.Join(t.TempDir(), "none.yaml"))
	testkit.WantCode(t, err, schemas.CodeNotFound)
	_, err = allow.New("/dev/zero")
	testkit.WantCode(t, err, schemas.CodeUnavailable)
}

func TestFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	path := file(t, "tenants: {a: {templates: []}}")
	l, err := allow.New(path)
	testkit.Must(t, err)
	check := func() error { return l.Check("a", "default", "none", "") }
	testkit.Must(t, os.WriteFile(path, []byte("tenants: [a]"), 0o600))
	_, err = l.Read()
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	testkit.Must(t, os.WriteFile(path, []byte("tenants: {a: {}}"), 0o600))
	use, err := l.Read()
	testkit.Must(t, err)
	testkit.WantCode(t, check(), schemas.CodePermissionDenied)
	use()
	testkit.Must(t, check())
}
