package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// maxToken is the longest token that is looked at, in bytes.
const maxToken = 512

// authenticate returns the token of a request. Errors: unauthenticated, unavailable.
func (g *Gateway) authenticate(r *http.Request) (*schemas.Token, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if scheme == "" {
		scheme, token = "Bearer", protocolToken(r)
	}
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return nil, schemas.Errorf(schemas.CodeUnauthenticated, "the request has no token: send the header Authorization: Bearer TOKEN")
	}
	return g.verify(r.Context(), token)
}

// verify returns what a token is. Errors: unauthenticated, unavailable.
func (g *Gateway) verify(ctx context.Context, token string) (*schemas.Token, error) {
	if g.cfg.MachineToken != "" && sameSecret(token, g.cfg.MachineToken) {
		return &schemas.Token{ID: "machine", Tenant: g.cfg.MachineTenant, Scope: schemas.ScopeAdmin}, nil
	}
	return client.NewTokens(g.cfg.Client).Verify(ctx, token)
}

// bearerProtocol is before the token in the subprotocols of a WebSocket: a page in a browser can send no other header with one.
const bearerProtocol = "bearer."

// protocolToken is the token among the subprotocols of a WebSocket; empty for none.
func protocolToken(r *http.Request) string {
	if !hasToken(r.Header, "Upgrade", "websocket") {
		return ""
	}
	for _, list := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(list, ",") {
			if token, ok := strings.CutPrefix(strings.TrimSpace(name), bearerProtocol); ok {
				return token
			}
		}
	}
	return ""
}

// hasToken reports that a header that is a list has an entry.
func hasToken(h http.Header, name, token string) bool {
	return slices.ContainsFunc(h.Values(name), func(list string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), token) })
	})
}

// sameSecret compares in constant time, whatever the lengths.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// checkHost refuses what a page in a browser may send: requests to a name that has come to lead here, and those of a page from elsewhere.
// Errors: permission_denied.
func (g *Gateway) checkHost(r *http.Request) error {
	if !g.knownHost(r.Host) {
		return schemas.Errorf(schemas.CodePermissionDenied,
			"the gateway is not known as %.100q: use its address, or start it with --http-host", r.Host)
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if u, err := url.Parse(origin); err != nil || u.Host != r.Host || (u.Scheme == "https") != (r.TLS != nil) {
		return schemas.Errorf(schemas.CodePermissionDenied, "a page of %.100q must not use the gateway", origin)
	}
	return nil
}

// knownHost reports that no page could have chosen this name: it is an address, localhost, or configured.
func (g *Gateway) knownHost(hostport string) bool {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return net.ParseIP(host) != nil || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(g.cfg.Hosts, func(known string) bool { return strings.EqualFold(known, host) })
}
