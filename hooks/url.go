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
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Headers of an HTTP hook.
const (
	HeaderTimestamp = "Sluice-Timestamp" // seconds since 1970
	HeaderSignature = "Sluice-Signature" // see [Sign]
	HeaderOccasion  = "Sluice-Occasion"  // that of the data: what a receiver tells repetitions by
)

// Sign is the header Sluice-Signature for a body: "sha256=" and the hex HMAC-SHA256, by the secret, of the timestamp, a dot and the
// body. A receiver makes it too, compares the two by [hmac.Equal], and refuses a timestamp that is minutes off.
func Sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// urlHook posts the data.
func (c *Chains) urlHook(s *schemas.HookSpec) (any, error) {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || (u.Scheme != "https" && u.Scheme != "http"):
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "url: %q is not of the form https://host/path", shownURL(s.URL))
	case u.User != nil:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "url: no user and password in it: sign by secret instead")
	case u.Scheme == "http" && !c.cfg.Private:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "url: http is for private addresses alone, which this worker's hooks may not reach: use https, or allow private hooks")
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
			// Read each time: a secret that is changed counts from the next call on.
			if secret, err = c.cfg.Secret(*ref); err != nil {
				return err
			}
		}
		return c.post.send(ctx, target, secret, call.Occasion, body)
	}), nil
}

// maxAnswer is how much of an answer is read, in bytes: enough to use the connection again.
const maxAnswer = 64 << 10

// poster makes HTTP requests to addresses that it checks: one client for each scheme, since what may go to an address depends on it.
type poster struct{ secure, plain *http.Client }

func newPoster(private bool) poster {
	return poster{secure: newClient(checker(private, true)), plain: newClient(checker(private, false))}
}

func newClient(check func(netip.Addr) error) *http.Client {
	// The address is checked after its name was resolved, so that no name can lead elsewhere later.
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return schemas.Errorf(schemas.CodeInvalidArgument, "address %s is not understood", address)
		}
		return check(at.Addr())
	}}
	return &http.Client{
		// A redirect would carry the signed body to where nobody said it should go.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:           nil, // a proxy would be what is checked, instead of the place
			DialContext:     dialer.DialContext,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxAnswer, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
		},
	}
}

func (p poster) close() {
	p.secure.CloseIdleConnections()
	p.plain.CloseIdleConnections()
}

func (p poster) send(ctx context.Context, target, secret, occasion string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "url: %s makes no request", shownURL(target))
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sluice")
	req.Header.Set(HeaderOccasion, occasion)
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
		// The client's own text repeats the URL, and with it what may be secret in its query.
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
		return schemas.Errorf(code, "POST to %s: %w", shownURL(target), err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // the status says it all
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return schemas.Errorf(schemas.CodeUnavailable, "POST to %s: status %d, and only 2xx is a success", shownURL(target), resp.StatusCode)
	}
	return nil
}

// checker refuses what a hook must not reach. Link-local addresses are where clouds hand out credentials: never.
func checker(private, secure bool) func(netip.Addr) error {
	return func(at netip.Addr) error {
		at = at.Unmap()
		inner := at.IsLoopback() || at.IsPrivate() || translated(at)
		switch {
		case !at.IsValid(), at.IsUnspecified(), at.IsMulticast(), at.IsLinkLocalUnicast():
			return schemas.Errorf(schemas.CodePermissionDenied, "%s is not an address that a hook may reach", at)
		case inner && !private:
			return schemas.Errorf(schemas.CodePermissionDenied, "%s is a private address, which this worker's hooks may not reach: allow private hooks to change that", at)
		case !inner && !secure:
			return schemas.Errorf(schemas.CodePermissionDenied, "%s is a public address, which hooks reach by https alone", at)
		}
		return nil
	}
}

// translated says whether an address is one of a provider's own network (RFC 6598), or leads to IPv4 ones by translation (RFC 6052,
// RFC 3056).
func translated(at netip.Addr) bool {
	for _, p := range []string{"100.64.0.0/10", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "0.0.0.0/8"} {
		if netip.MustParsePrefix(p).Contains(at) {
			return true
		}
	}
	return false
}
