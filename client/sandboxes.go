package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// Sandboxes are sandboxes of one program, with what their requests have in common. Methods are safe for concurrent use.
type Sandboxes struct {
	client *Client
	like   SessionRequest
	opts   []SandboxOption

	mu   sync.Mutex
	made map[*Sandbox]struct{} // that are not stopped
}

// Sandboxes returns a group of sandboxes; their requests have the fields of like that they leave out, and its tags beside their own.
func (c *Client) Sandboxes(like SessionRequest, opts ...SandboxOption) *Sandboxes {
	return &Sandboxes{client: c, like: like, opts: opts, made: make(map[*Sandbox]struct{})}
}

// Sandbox returns a handle that makes no request before its first use. Without a Thread it gets a new one.
func (g *Sandboxes) Sandbox(req SessionRequest, opts ...SandboxOption) *Sandbox {
	s := newSandbox(g.client, req.or(g.like), append(slices.Clone(g.opts), opts...))
	s.group = g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made[s] = struct{}{}
	return s
}

// Run is [Run].
func (g *Sandboxes) Run(ctx context.Context, req SessionRequest, opts ...SandboxOption) (*Sandbox, error) {
	return g.Sandbox(req, opts...).started(ctx)
}

// Attach is [Attach].
func (g *Sandboxes) Attach(ctx context.Context, thread string) (*Sandbox, error) {
	return Attach(ctx, g.client, thread, g.opts...)
}

// List returns handles on the sessions that are selected and have the tags of the group, as Attach does. They may be of other programs.
// Errors: those of [Client.Sessions].
func (g *Sandboxes) List(ctx context.Context, q SessionQuery) ([]*Sandbox, error) {
	q.Tags = merged(g.like.Tags, q.Tags)
	list, err := g.client.Sessions(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]*Sandbox, len(list))
	for i := range list {
		out[i] = attached(g.client, &list[i], g.opts)
	}
	return out, nil
}

// Close closes every handle of the group that Sandbox and Run returned, all at once; see [Sandbox.Close].
func (g *Sandboxes) Close() error {
	g.mu.Lock()
	all := slices.Collect(maps.Keys(g.made))
	g.mu.Unlock()
	errs := make(chan error, len(all))
	for _, s := range all {
		go func() { errs <- s.Close() }()
	}
	var failed error
	for range all {
		failed = errors.Join(failed, <-errs)
	}
	return failed
}

// leave takes a handle that is stopped out of its group, nil for none.
func (g *Sandboxes) leave(s *Sandbox) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.made, s)
}

// or returns the request with the fields of like that it leaves out.
func (r SessionRequest) or(like SessionRequest) SessionRequest {
	r.Template, r.Provider, r.Image = cmp.Or(r.Template, like.Template), cmp.Or(r.Provider, like.Provider), cmp.Or(r.Image, like.Image)
	r.User, r.Tags = cmp.Or(r.User, like.User), merged(like.Tags, r.Tags)
	r.IdleTimeout, r.MaxLifetime = cmp.Or(r.IdleTimeout, like.IdleTimeout), cmp.Or(r.MaxLifetime, like.MaxLifetime)
	if r.TraceParent == "" {
		r.TraceParent, r.TraceState = like.TraceParent, like.TraceState
	}
	r.Labels = merged(like.Labels, r.Labels)
	return r
}

// merged returns the entries of both, where those of over go first; nil for none.
func merged(under, over map[string]string) map[string]string {
	if len(under) == 0 {
		return over
	}
	out := maps.Clone(under)
	maps.Copy(out, over)
	return out
}
