package dashboard

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// cookieLife is how long a person stays signed in, unless the token ends before.
	cookieLife = 12 * time.Hour
	// maxToken is the longest token that is looked at, in bytes, and maxForm the largest form.
	maxToken = 512
	maxForm  = 4 << 10
)

// gate decides who may enter, by the cookie that signing in has set.
type gate struct {
	client *client.Client
	verify func(ctx context.Context, token string) (*schemas.Token, error)
}

// admit returns the token of a request, and the visit. Errors: unauthenticated, unavailable.
func (g *gate) admit(r *http.Request) (token string, v *visit, err error) {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil || cookie.Value == "" || len(cookie.Value) > maxToken {
		return "", nil, schemas.Errorf(schemas.CodeUnauthenticated, "sign in at %s", loginPath)
	}
	known, err := g.verify(r.Context(), cookie.Value)
	if err != nil {
		return "", nil, err
	}
	c, err := client.ForTenant(g.client, known.Tenant)
	if err != nil {
		return "", nil, err
	}
	return cookie.Value, &visit{r: r, client: c, token: known}, nil
}

// cookieName has the port: browsers send the cookies of a host to all its ports, and two gateways must not overwrite each other's.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "default"
	}
	if r.TLS != nil {
		return "__Secure-sluice-" + port
	}
	return "sluice-" + port
}

// setCookie sets the cookie for a time; one of less than a second ends it.
func setCookie(w http.ResponseWriter, r *http.Request, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: value, Path: Path, MaxAge: cmp.Or(int(life/time.Second), -1), HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode,
	})
}

// fromOwnPage reports that a page of this dashboard made the request. SameSite does not: to browsers, all ports of a host are one site.
func fromOwnPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return r.Header.Get("Origin") == scheme+"://"+r.Host
}

// nextQuery is the query of the login page that leads back.
func nextQuery(r *http.Request) string {
	if r.URL.Path == Path {
		return ""
	}
	return url.Values{"next": {r.URL.RequestURI()}}.Encode()
}

// safeNext returns a path of the dashboard; that of the overview for anything else.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, Path) || strings.Contains(next, "\\") {
		return Path
	}
	return next
}

// loginView is the page to sign in.
type loginView struct {
	Next, Problem string
}

func (h *Handler) login(w http.ResponseWriter, r *http.Request) {
	next := safeNext(r.URL.Query().Get("next"))
	if _, _, err := h.gate.admit(r); err == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	h.pages.show(w, nil, http.StatusOK, &page{name: "login", Title: "Sign in", Data: loginView{Next: next}})
}

func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	refuse := func(err error, problem string) {
		h.pages.show(w, nil, statusOf(err), &page{name: "login", Title: "Sign in", Data: loginView{
			Next: safeNext(r.PostForm.Get("next")), Problem: problem,
		}})
	}
	if err := r.ParseForm(); err != nil {
		refuse(schemas.ErrInvalidArgument, "The form did not arrive whole. Try again.")
		return
	}
	if !fromOwnPage(r) {
		refuse(schemas.ErrPermissionDenied, "This form must be sent from this page. Reload it and try again.")
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	if token == "" || len(token) > maxToken {
		refuse(schemas.ErrUnauthenticated, "Paste a token first.")
		return
	}
	known, err := h.gate.verify(r.Context(), token)
	if schemas.CodeOf(err) == schemas.CodeUnauthenticated {
		refuse(err, "This token is not valid, has expired, or was revoked.")
		return
	}
	if err != nil {
		refuse(err, "The gateway cannot check tokens now: it does not reach its server. Try again in a moment.")
		return
	}
	life := cookieLife
	if !known.Expires.IsZero() {
		life = min(life, time.Until(known.Expires))
	}
	setCookie(w, r, token, life)
	http.Redirect(w, r, safeNext(r.PostForm.Get("next")), http.StatusSeeOther)
}

func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	if !fromOwnPage(r) {
		h.pages.fail(w, nil, schemas.Errorf(schemas.CodePermissionDenied, "another page asked to sign you out: use the button of the dashboard"))
		return
	}
	setCookie(w, r, "", 0)
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}
