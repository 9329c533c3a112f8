package dashboard

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// Path is where the dashboard is.
const Path = "/ui/"

const (
	loginPath  = Path + "login"
	logoutPath = Path + "logout"
	staticPath = Path + "static/"
	apiPath    = Path + "v1/"
)

// policy lets a page load only what the gateway serves, and lets no script turn text into elements. stylesPolicy is that of the page with a
// terminal, whose script makes style sheets.
const (
	policyStart  = "default-src 'none'; script-src 'self'; style-src 'self'"
	policyRest   = "; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	policy       = policyStart + policyRest
	stylesPolicy = policyStart + " 'unsafe-inline'" + policyRest
)

// apiPolicy is that of answers of /v1: a browser that opens one as a page runs nothing of it.
const apiPolicy = "default-src 'none'; frame-ancestors 'none'; sandbox"

//go:embed static
var static embed.FS

// Config configures a dashboard. All of it is required.
type Config struct {
	// Client talks to the cell; see ForTenant.
	Client *client.Client
	// Verify returns what a token is. Errors: unauthenticated, unavailable.
	Verify func(ctx context.Context, token string) (*schemas.Token, error)
	// Count has a page made within the limits of a token. Errors: limit_exceeded, those of the page.
	Count func(w http.ResponseWriter, r *http.Request, t *schemas.Token, page func() error) error
	// API serves /v1 to requests whose header Authorization has a token.
	API http.Handler
}

// Handler serves the dashboard below [Path].
type Handler struct {
	mux   *http.ServeMux
	gate  *gate
	pages *pages
	count func(w http.ResponseWriter, r *http.Request, t *schemas.Token, page func() error) error
	api   http.Handler
}

// New returns a dashboard.
func New(cfg Config) *Handler {
	h := &Handler{mux: http.NewServeMux(), gate: &gate{client: cfg.Client, verify: cfg.Verify}, pages: newPages(assetVersion()), count: cfg.Count, api: cfg.API}
	h.mux.HandleFunc("GET "+staticPath+"{file}", serveStatic)
	h.mux.HandleFunc("GET "+loginPath, h.login)
	h.mux.HandleFunc("POST "+loginPath, h.signIn)
	h.mux.HandleFunc("POST "+logoutPath, h.signOut)
	h.mux.HandleFunc(apiPath, h.serveAPI)
	for pattern, read := range map[string]func(*visit) (*page, error){
		"{$}":                              overviewPage,
		"processes":                        processesPage,
		"processes/{process}":              processPage,
		"threads/{thread}":                 threadPage,
		"threads/{thread}/files":           filesPage,
		"threads/{thread}/files/{path...}": filesPage,
		"threads/{thread}/terminal":        terminalPage,
		"threads/{thread}/messages":        messagesPage,
		"threads":                          findThread,
	} {
		h.mux.HandleFunc("GET "+Path+pattern, h.page(read))
	}
	h.mux.HandleFunc(Path, h.page(noPage))
	return h
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("X-Frame-Options", "DENY")
	h.mux.ServeHTTP(w, r)
}

// visit is a request of a person who has signed in.
type visit struct {
	r      *http.Request
	client *client.Client
	token  *schemas.Token
}

func (v *visit) ctx() context.Context { return v.r.Context() }

// page serves what read returns.
func (h *Handler) page(read func(*visit) (*page, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, v, err := h.gate.admit(r)
		if schemas.CodeOf(err) == schemas.CodeUnauthenticated {
			http.Redirect(w, r, loginPath+"?"+nextQuery(r), http.StatusSeeOther)
			return
		}
		var p *page
		if err == nil {
			err = h.count(w, r, v.token, func() (err error) {
				p, err = read(v)
				return err
			})
		}
		switch {
		case err != nil:
			h.pages.fail(w, v, err)
		case p.moved != "":
			http.Redirect(w, r, p.moved, http.StatusSeeOther)
		default:
			h.pages.show(w, v, http.StatusOK, p)
		}
	}
}

// serveAPI passes a request of a page to /v1, with the token of the cookie. The cookie goes with requests of any page of this machine's
// name: those of others are refused.
func (h *Handler) serveAPI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", apiPolicy)
	token, _, err := h.gate.admit(r)
	if err == nil && !fromOwnPage(r) {
		err = schemas.Errorf(schemas.CodePermissionDenied, "only pages of the dashboard may use %s: use /v1 with a token", apiPath)
	}
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(statusOf(err))
		e := schemas.AsError(err)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": e.Error(), "code": e.Code}) // its reader may have left
		return
	}
	inner := r.Clone(r.Context())
	inner.Header.Del("Cookie")
	inner.Header.Set("Authorization", "Bearer "+token)
	http.StripPrefix(strings.TrimSuffix(Path, "/"), h.api).ServeHTTP(w, inner)
}

func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	body, err := static.ReadFile("static/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable") // its URL has the version
	_, _ = w.Write(body)
}

// assetVersion is a hash of the static files, for their URLs.
func assetVersion() string {
	sum := sha256.New()
	if err := fs.WalkDir(static, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		body, err := static.ReadFile(name)
		_, _ = sum.Write(body)
		return err
	}); err != nil {
		panic(err) // they are part of the program
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}
