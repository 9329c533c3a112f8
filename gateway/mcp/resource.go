package mcp

import (
	"context"
	"net/url"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// maxResource is the most bytes of a resource. What is left out of a file is its end, of a log its middle.
const maxResource = 256 << 10

// metaNext is the field of a resource's _meta that says where it goes on, in bytes. It is there when some is left out.
const metaNext = "sluice/next_offset"

// metaMissing is the field of the _meta of a log of which some output is lost.
const metaMissing = "sluice/missing"

func (s *server) addResources() {
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "file", Title: "File of a workspace", URITemplate: "sluice://files/{thread}/{+path}",
		Description: "A file of a thread's workspace: its first 256 KiB.",
	}, s.resource("files", s.fileResource))
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "log", Title: "Output of a process", URITemplate: "sluice://logs/{thread}/{process}/{stream}",
		Description: "The stdout or stderr of a process: at most 256 KiB, the beginning and the end of a longer one.",
	}, s.resource("logs", s.logResource))
}

// resource reads a resource of a thread, whose URI has the rest after the thread.
func (s *server) resource(kind string, read func(ctx context.Context, thread, rest string) (*sdk.ResourceContents, error)) sdk.ResourceHandler {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		thread, rest, err := s.parse(kind, req.Params.URI)
		if err != nil {
			return nil, protocolError(err)
		}
		c, err := read(ctx, thread, rest)
		if err != nil {
			return nil, protocolError(err)
		}
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
	}
}

// parse returns what a URI names. Errors: invalid_argument, not_found for a thread that is not served.
func (s *server) parse(kind, uri string) (thread, rest string, err error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "sluice" || u.Host != kind || u.RawQuery != "" || u.Fragment != "" {
		return "", "", schemas.Errorf(schemas.CodeInvalidArgument, "the URI is not sluice://%s/THREAD/…, with %% escapes for other characters", kind)
	}
	thread, rest, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if !ok || rest == "" {
		return "", "", schemas.Errorf(schemas.CodeInvalidArgument, "the URI names nothing below thread %q", cut(clean(thread), maxLine))
	}
	if err := schemas.CheckID("thread", thread); err != nil {
		return "", "", err
	}
	if s.Thread != "" && thread != s.Thread {
		return "", "", schemas.Errorf(schemas.CodeNotFound, "thread %s is not served here: only %s is", thread, s.Thread)
	}
	return thread, rest, nil
}

func (s *server) fileResource(ctx context.Context, thread, path string) (*sdk.ResourceContents, error) {
	files, err := s.files(ctx, target{thread})
	if err != nil {
		return nil, err
	}
	data, more, err := readPart(ctx, files, path, 0, maxResource)
	if err != nil {
		return nil, err
	}
	if more && utf8.Valid(wholeEnd(data)) {
		data = wholeEnd(data)
	}
	c := contents(data)
	if more {
		c.Meta = sdk.Meta{metaNext: len(data)}
	}
	return c, nil
}

func (s *server) logResource(ctx context.Context, thread, rest string) (*sdk.ResourceContents, error) {
	process, stream, _ := strings.Cut(rest, "/")
	if stream != string(schemas.Stdout) && stream != string(schemas.Stderr) {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "the URI ends with %q: write stdout or stderr", cut(clean(stream), maxLine))
	}
	c := captured{max: maxResource}
	lost := func(g schemas.LogGap) error {
		c.missing = c.missing || string(g.Stream) == stream
		return nil
	}
	err := s.Client.Logs(ctx, client.LogQuery{Process: process, Thread: thread, Gap: lost}, func(k schemas.Chunk) error {
		if string(k.Stream) == stream {
			c.add(&k)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	whole := contents(c.head)
	if c.headEnded {
		o := c.output(encodingText)
		whole = &sdk.ResourceContents{MIMEType: "text/plain", Text: o.Text + "\n[…]\n" + o.Tail, Meta: sdk.Meta{metaNext: o.NextOffset}}
	}
	if c.missing {
		if whole.Meta == nil {
			whole.Meta = sdk.Meta{}
		}
		whole.Meta[metaMissing] = true
	}
	return whole, nil
}

// contents is text, or a blob of what is not UTF-8.
func contents(data []byte) *sdk.ResourceContents {
	if utf8.Valid(data) {
		return &sdk.ResourceContents{MIMEType: "text/plain", Text: string(data)}
	}
	return &sdk.ResourceContents{MIMEType: "application/octet-stream", Blob: data}
}
