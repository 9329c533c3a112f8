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

// imageInfo is the part of an image's configuration that a sandbox uses.
type imageInfo struct {
	id      string
	env     map[string]string
	volumes []string // folders that the engine would otherwise make writable without a limit
}

func (p *Provider) ensureImage(ctx context.Context, name string) (*imageInfo, error) {
	i, err := p.inspectImage(ctx, name)
	if !errdefs.IsNotFound(err) {
		return i, p.imageError(name, err)
	}
	// One pull at a time. A caller that waited for the same image then finds it.
	select {
	case p.pulling <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.pulling }()
	if i, err = p.inspectImage(ctx, name); !errdefs.IsNotFound(err) {
		return i, p.imageError(name, err)
	}
	pullCtx, cancel := context.WithTimeout(ctx, p.config.PullTimeout)
	defer cancel()
	if err := p.pull(pullCtx, name); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	i, err = p.inspectImage(ctx, name)
	return i, p.imageError(name, err)
}

func (p *Provider) inspectImage(ctx context.Context, name string) (*imageInfo, error) {
	found, err := p.client.ImageInspect(ctx, name)
	if err != nil {
		return nil, err
	}
	i := &imageInfo{id: found.ID, env: make(map[string]string)}
	if found.Config == nil {
		return i, nil
	}
	for _, entry := range found.Config.Env {
		// In every sandbox HOME is the workspace.
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" && name != "HOME" {
			i.env[name] = value
		}
	}
	for path := range found.Config.Volumes {
		i.volumes = append(i.volumes, path)
	}
	return i, nil
}

func (p *Provider) imageError(name string, err error) error {
	return engineError(p.client, "image "+name, err)
}

// pullMessage is a line of the engine's answer to a pull.
type pullMessage struct {
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
		var m pullMessage
		switch err := lines.Decode(&m); {
		case err == io.EOF:
			return nil
		case err != nil:
			return p.pullError(name, err)
		case m.Error != "":
			return p.pullError(name, errors.New(m.Error))
		}
		p.config.OnPull(Progress{
			Image: name, Layer: m.ID, Status: m.Status, Current: m.Progress.Current, Total: m.Progress.Total,
		})
	}
}

// pullError distinguishes an image that does not exist from a registry that cannot be reached. It compares texts, because engines
// answer with different statuses, and report later errors only as text.
func (p *Provider) pullError(name string, err error) error {
	text := err.Error()
	for _, part := range []string{"not found", "does not exist", "manifest unknown", "no matching manifest", "pull access denied"} {
		if strings.Contains(text, part) {
			return schemas.Errorf(schemas.CodeNotFound, "docker: image %s is neither on this machine nor in its registry: %w", name, err)
		}
	}
	if errdefs.IsInvalidArgument(err) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "docker: image %q: %w", name, err)
	}
	return schemas.Errorf(schemas.CodeUnavailable, "docker: cannot pull image %s: %w", name, err)
}
