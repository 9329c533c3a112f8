package hooks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Headers of an HTTP hook.
const (
	HeaderTimestamp = "Sluice-Timestamp" // Unix time in seconds
	HeaderSignature = "Sluice-Signature" // see [Sign]
	HeaderOccasion  = "Sluice-Occasion"  // the occasion of the data, to recognize repetitions
)

// Sign returns the header Sluice-Signature for a body: "sha256=" and the hex HMAC-SHA256, with the secret, of the timestamp, a dot
// and the body. A receiver computes it too, compares both by [hmac.Equal], and refuses a timestamp that is minutes off.
func Sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// urlHook posts the data to a URL.
func (c *Chains) urlHook(s *schemas.HookSpec) (any, error) {
	switch {
	case strings.HasPrefix(strings.ToLower(s.URL), "http:") && !c.cfg.Private:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "url: http is for private addresses, which this worker does not allow: use https, or allow private hooks")
	case s.Secret != nil && c.cfg.Secret == nil:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "url: this worker reads no secrets")
	}
	target, ref := s.URL, s.Secret
	return everyPhase(func(ctx context.Context, call *Call) error {
		body, err := encode(call)
		if err != nil {
			return err
		}
		var secret string
		if ref != nil {
			// Read on each call, so that a changed secret takes effect.
			if secret, err = c.cfg.Secret(*ref); err != nil {
				return err
			}
		}
		return c.post.send(ctx, target, secret, call, body)
	}), nil
}

// maxReply is how much of a reply is read, in bytes, so that the connection can be used again.
const maxReply = 64 << 10

// poster sends HTTP requests to allowed addresses. It has a client for each scheme, since the scheme decides which addresses are
// allowed.
type poster struct{ secure, plain *http.Client }

func newPoster(private bool) poster {
	r := newRanges()
	return poster{
		secure: newClient(func(at netip.Addr) error { return r.check(at, private, true) }),
		plain:  newClient(func(at netip.Addr) error { return r.check(at, private, false) }),
	}
}

func newClient(check func(netip.Addr) error) *http.Client {
	// Checked after name resolution, so that a name cannot resolve to another address later.
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return schemas.Errorf(schemas.CodeInvalidArgument, "%s is not a valid address", address)
		}
		return check(at.Addr())
	}}
	return &http.Client{
		// A redirect would send the signed body to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:           nil, // with a proxy, the check would see the proxy's address
			DialContext:     dialer.DialContext,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxReply, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
		},
	}
}

func (p poster) close() {
	p.secure.CloseIdleConnections()
	p.plain.CloseIdleConnections()
}

func (p poster) send(ctx context.Context, target, secret string, call *Call, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "url: %s is not valid", withoutQuery(target))
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sluice")
	req.Header.Set(HeaderOccasion, call.Occasion)
	if call.TraceParent != "" {
		req.Header.Set(schemas.HeaderTraceParent, call.TraceParent)
	}
	if call.TraceState != "" {
		req.Header.Set(schemas.HeaderTraceState, call.TraceState)
	}
	req.Header.Set(HeaderTimestamp, stamp)
	if secret != "" {
		req.Header.Set(HeaderSignature, Sign(secret, stamp, body))
	}
	client := p.secure
	if req.URL.Scheme == "http" {
		client = p.plain
	}
	resp, err := client.Do(req)
	if err != nil {
		// The client's error contains the URL, whose query may hold a secret.
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		code := schemas.CodeUnavailable
		if errors.Is(err, context.DeadlineExceeded) {
			code = schemas.CodeDeadlineExceeded
		}
		if own, ok := errors.AsType[*schemas.Error](err); ok {
			code = own.Code
		}
		return schemas.Errorf(code, "POST to %s: %w", withoutQuery(target), err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxReply)) // only the status counts
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return schemas.Errorf(schemas.CodeUnavailable, "POST to %s: status %d, want 2xx", withoutQuery(target), resp.StatusCode)
	}
	return nil
}
