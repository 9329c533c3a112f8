package dashboard

import (
	"bytes"
	"cmp"
	"embed"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

//go:embed templates
var sources embed.FS

// page is what a template shows.
type page struct {
	name    string // of the template
	moved   string // where the page is; empty for here
	Title   string
	Section string // of the navigation
	styles  bool   // scripts of the page make style sheets
	Live    string // the stream whose events make the page load again; empty for none
	Data    any
}

// shell is what is around a page.
type shell struct {
	*page
	Token   *schemas.Token // nil before signing in
	MayRun  bool
	Version string // of the static files
	Now     time.Time
}

// problem is the page of an error.
type problem struct {
	Headline, Text, Request string
}

// pages renders pages.
type pages struct {
	version string
	byName  map[string]*template.Template
}

func newPages(version string) *pages {
	p := &pages{version: version, byName: map[string]*template.Template{}}
	common := template.Must(template.New("").Funcs(functions()).ParseFS(sources, "templates/layout.html", "templates/parts.html"))
	files, err := sources.ReadDir("templates")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".html")
		if name != "layout" && name != "parts" {
			p.byName[name] = template.Must(template.Must(common.Clone()).ParseFS(sources, path.Join("templates", f.Name())))
		}
	}
	return p
}

// show answers with a page. v is nil before signing in.
func (p *pages) show(w http.ResponseWriter, v *visit, status int, shown *page) {
	s := shell{page: shown, Version: p.version, Now: time.Now()}
	if v != nil {
		s.Token, s.MayRun = v.token, v.token.Allows(schemas.ScopeExec)
	}
	var body bytes.Buffer
	if err := p.byName[shown.name].ExecuteTemplate(&body, "layout", s); err != nil {
		panic(err) // a fault of a template; the gateway logs it
	}
	if shown.styles {
		w.Header().Set("Content-Security-Policy", stylesPolicy)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}

// fail answers with a page about an error.
func (p *pages) fail(w http.ResponseWriter, v *visit, err error) {
	shown := problem{Text: schemas.AsError(err).Error(), Request: w.Header().Get("X-Request-Id")}
	switch schemas.CodeOf(err) {
	case schemas.CodeNotFound, schemas.CodeSessionExpired:
		shown.Headline = "This does not exist"
	case schemas.CodeInvalidArgument:
		shown.Headline = "This address is not valid"
	case schemas.CodeLimitExceeded:
		shown.Headline = "The limit of your token is reached"
		w.Header().Set("Retry-After", cmp.Or(schemas.AsError(err).Details[schemas.DetailRetryAfter], "1"))
	case schemas.CodePermissionDenied:
		shown.Headline = "This is not allowed"
	case schemas.CodeUnavailable, schemas.CodeDeadlineExceeded:
		shown.Headline = "Sluice does not answer now"
	default:
		shown.Headline = "Something went wrong"
	}
	p.show(w, v, statusOf(err), &page{name: "problem", Title: shown.Headline, Data: shown})
}

// statusOf is the HTTP status of an error's page.
func statusOf(err error) int {
	switch schemas.CodeOf(err) {
	case schemas.CodeNotFound, schemas.CodeSessionExpired:
		return http.StatusNotFound
	case schemas.CodeInvalidArgument:
		return http.StatusBadRequest
	case schemas.CodeUnauthenticated:
		return http.StatusUnauthorized
	case schemas.CodePermissionDenied:
		return http.StatusForbidden
	case schemas.CodeLimitExceeded:
		return http.StatusTooManyRequests
	case schemas.CodeUnavailable:
		return http.StatusServiceUnavailable
	case schemas.CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

func noPage(v *visit) (*page, error) {
	return nil, schemas.Errorf(schemas.CodeNotFound, "the dashboard has no page %.100q", v.r.URL.Path)
}
