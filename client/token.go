package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// ForTenant returns a client of another tenant on the same connection, which its Close leaves open. The two share one bound on the file
// content under way. Errors: invalid_argument for a tenant that is not a valid id.
func ForTenant(c *Client, tenant string, opts ...Option) (*Client, error) {
	other, err := New(c.conn, append(opts, WithTenant(tenant))...)
	if err == nil {
		other.shared = c.shared
	}
	return other, err
}

// Tokens are the tokens of the HTTP gateway. Its methods are safe for concurrent use.
type Tokens struct {
	store  *events.TokenStore
	tenant string
}

// NewTokens returns the tokens of the client's tenant.
func NewTokens(c *Client) *Tokens {
	return &Tokens{store: events.NewTokenStore(c.conn), tenant: c.tenant}
}

// TokenRequest is a token to create.
type TokenRequest struct {
	// Name says for people what the token is for. Default: none.
	Name string
	// Scope is what the token allows. Default read.
	Scope schemas.Scope
	// Lifetime is how long it is valid. Default 0: until it is revoked.
	Lifetime time.Duration
	// Limits bound what its bearer may use. Default nil: those of [schemas.DefaultTokenLimits].
	Limits *schemas.TokenLimits
}

// tokenMark is what every token begins with, so that people and scanners for secrets recognize one.
const tokenMark = "slt"

// Create creates a token of the tenant, and returns it with its secret, which is stored nowhere. Errors: invalid_argument, unavailable,
// not_found where no worker has set up the cell yet.
func (t *Tokens) Create(ctx context.Context, req TokenRequest) (secret string, info *schemas.Token, err error) {
	if req.Lifetime < 0 {
		return "", nil, schemas.Errorf(schemas.CodeInvalidArgument, "the lifetime of a token is %s: it must not be negative", req.Lifetime)
	}
	part := rand.Text()
	stored := &events.StoredToken{
		Token: schemas.Token{
			ID: strings.ToLower(rand.Text()[:12]), Name: req.Name, Tenant: t.tenant, Scope: cmp.Or(req.Scope, schemas.ScopeRead),
			Created: time.Now().UTC().Truncate(time.Second),
		},
		Hash: tokenHash(part),
	}
	if stored.Limits = schemas.DefaultTokenLimits(); req.Limits != nil {
		stored.Limits = *req.Limits
	}
	if req.Lifetime > 0 {
		stored.Expires = stored.Created.Add(req.Lifetime)
	}
	if err := t.store.CreateToken(ctx, stored); err != nil {
		return "", nil, err
	}
	return strings.Join([]string{tokenMark, stored.ID, part}, "_"), &stored.Token, nil
}

// List returns the tokens of the tenant, the oldest first. One that has expired is listed for a day. Errors: unavailable.
func (t *Tokens) List(ctx context.Context) ([]schemas.Token, error) {
	out := []schemas.Token{}
	err := t.store.EachToken(ctx, func(k *schemas.Token) error {
		if k.Tenant == t.tenant {
			out = append(out, *k)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b schemas.Token) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	return out, err
}

// Revoke deletes a token of the tenant: no gateway accepts it any more. Errors: not_found, invalid_argument, unavailable.
func (t *Tokens) Revoke(ctx context.Context, id string) error {
	k, err := t.store.Token(ctx, id)
	if err == nil && k.Tenant != t.tenant {
		err = schemas.Errorf(schemas.CodeNotFound, "token %s does not exist", id)
	}
	if err != nil {
		return err
	}
	return t.store.DeleteToken(ctx, id)
}

// Verify returns what a token is, of whatever tenant. Errors: unauthenticated for one that was never created, was revoked or has expired;
// unavailable.
func (t *Tokens) Verify(ctx context.Context, token string) (*schemas.Token, error) {
	refused := schemas.Errorf(schemas.CodeUnauthenticated, "the token is not valid: `sluice token create` makes one")
	parts := strings.Split(token, "_")
	if len(parts) != 3 || parts[0] != tokenMark || !schemas.ValidID(parts[1]) {
		return nil, refused
	}
	stored, err := t.store.Token(ctx, parts[1])
	if errors.Is(err, schemas.ErrNotFound) {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare(stored.Hash, tokenHash(parts[2])) != 1 {
		return nil, refused
	}
	if !stored.Expires.IsZero() && !time.Now().Before(stored.Expires) {
		return nil, schemas.Errorf(schemas.CodeUnauthenticated, "the token has expired: `sluice token create` makes another one")
	}
	return &stored.Token, nil
}

// tokenHash is what is stored of a secret. It has 128 random bits, so that no slow hash is needed.
func tokenHash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
