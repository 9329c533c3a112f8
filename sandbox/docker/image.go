package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"

	"github.com/sluice-dev/sluice/schemas"
)

// recipe is what of an image matters to a sandbox.
type recipe struct {
	id      string
	env     map[string]string
	volumes []string // folders the engine would otherwise make writable, with no limit
}

// ensureImage gives the image, and pulls it where it is missing.
func (p *Provider) ensureImage(ctx context.Context, name string) (*recipe, error) {
	r, err := p.inspectImage(ctx, name)
	if !errdefs.IsNotFound(err) {
		return r, p.imageError(name, err)
	}
	// One pull at a time: whoever waits for the same image finds it there afterwards.
	select {
	case p.pulling <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.pulling }()
	if r, err = p.inspectImage(ctx, name); !errdefs.IsNotFound(err) {
		return r, p.imageError(name, err)
	}
	pullCtx, cancel := context.WithTimeout(ctx, p.config.PullTimeout)
	defer cancel()
	if err := p.pull(pullCtx, name); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	r, err = p.inspectImage(ctx, name)
	return r, p.imageError(name, err)
}

func (p *Provider) inspectImage(ctx context.Context, name string) (*recipe, error) {
	i, err := p.client.ImageInspect(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &recipe{id: i.ID, env: make(map[string]string)}
	if i.Config == nil {
		return r, nil
	}
	for _, entry := range i.Config.Env {
		// HOME is the workspace in every sandbox.
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" && name != "HOME" {
			r.env[name] = value
		}
	}
	for path := range i.Config.Volumes {
		r.volumes = append(r.volumes, path)
	}
	return r, nil
}

func (p *Provider) imageError(name string, err error) error {
	return engineError(p.client, "image "+name, err)
}

// report is a line of what the engine says while it pulls.
type report struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Progress struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	Error string `json:"error"`
}

func (p *Provider) pull(ctx context.Context, name string) error {
	body, err := p.client.ImagePull(ctx, name, image.PullOptions{})
	if err != nil {
		return p.pullError(name, err)
	}
	defer body.Close()
	for lines := json.NewDecoder(body); ; {
		var r report
		switch err := lines.Decode(&r); {
		case err == io.EOF:
			return nil
		case err != nil:
			return p.pullError(name, err)
		case r.Error != "":
			return p.pullError(name, errors.New(r.Error))
		}
		p.config.Pulling(Progress{
			Image: name, Layer: r.ID, Status: r.Status, Current: r.Progress.Current, Total: r.Progress.Total,
		})
	}
}

// pullError tells an image that is nowhere from a registry that cannot be asked. Engines differ in the status they answer
// with, and report what happens later as text alone.
func (p *Provider) pullError(name string, err error) error {
	text := err.Error()
	for _, says := range []string{"not found", "does not exist", "manifest unknown", "no matching manifest", "pull access denied"} {
		if strings.Contains(text, says) {
			return schemas.Errorf(schemas.CodeNotFound, "docker: image %s is neither here nor in its registry: %w", name, err)
		}
	}
	if errdefs.IsInvalidArgument(err) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "docker: image %q: %w", name, err)
	}
	return schemas.Errorf(schemas.CodeUnavailable, "docker: image %s is not here and cannot be pulled: %w", name, err)
}
