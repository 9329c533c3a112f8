package mcp

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// rules complete the schema of a tool's input, by the name of the property.
type rules map[string]func(*jsonschema.Schema)

// between bounds a number, and has it be standard where a call does not name it.
func between(lowest, highest, standard int) func(*jsonschema.Schema) {
	return func(p *jsonschema.Schema) {
		p.Minimum, p.Maximum = jsonschema.Ptr(float64(lowest)), jsonschema.Ptr(float64(highest))
		p.Default, _ = json.Marshal(standard) // a number
	}
}

// atLeast bounds a number from below, which is 0 where a call does not name it.
func atLeast(lowest int) func(*jsonschema.Schema) {
	return func(p *jsonschema.Schema) { p.Minimum = jsonschema.Ptr(float64(lowest)) }
}

// oneOf lists the values of a string. The first is the default.
func oneOf(values ...string) func(*jsonschema.Schema) {
	return func(p *jsonschema.Schema) {
		for _, v := range values {
			p.Enum = append(p.Enum, v)
		}
		p.Default, _ = json.Marshal(values[0]) // a string
	}
}

// matches is the form of a string.
func matches(pattern string) func(*jsonschema.Schema) {
	return func(p *jsonschema.Schema) { p.Pattern = pattern }
}

// filled is a string, or an array, with something in it.
func filled(p *jsonschema.Schema) {
	if p.Type == "string" {
		p.MinLength = jsonschema.Ptr(1)
		return
	}
	p.MinItems = jsonschema.Ptr(1)
}

// schemaOf is the schema of a type. Its properties have one type each: not every caller understands several.
func schemaOf[T any](r rules) *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // a fault in this package, which every test finds
	}
	single(schema)
	for name, rule := range r {
		rule(schema.Properties[name])
	}
	return schema
}

// single takes null out of the types of a schema: a value that is not there is left out.
func single(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	single(s.Items)
	for _, p := range s.Properties {
		single(p)
	}
}

// tool is the description of a tool.
type tool struct {
	name, title, description string
	// reads says that it changes nothing, destroys that it may remove or replace something, repeats that a repetition changes nothing more.
	reads, destroys, repeats bool
	// world says that it may reach beyond the sandbox.
	world bool
	input rules
}

// described has the descriptions of the tools, for all servers of a handler: a schema is made and resolved once, and not for each request.
type described struct {
	resolved *sdk.SchemaCache

	mu    sync.Mutex
	tools map[toolKey]*sdk.Tool
}

// toolKey is the name of a tool, for servers of one thread or of all.
type toolKey struct {
	name      string
	oneThread bool
}

func newDescribed() *described {
	return &described{resolved: sdk.NewSchemaCache(), tools: make(map[toolKey]*sdk.Tool)}
}

// of returns a tool, and makes it if there is none.
func (d *described) of(key toolKey, create func() *sdk.Tool) *sdk.Tool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tools[key] == nil {
		d.tools[key] = create()
	}
	return d.tools[key]
}

// add adds a tool, unless the server may only read.
func add[In, Out any](s *server, t tool, run func(ctx context.Context, req *sdk.CallToolRequest, in In) (Out, error)) {
	if s.ReadOnly && !t.reads {
		return
	}
	entry := s.tools.of(toolKey{t.name, s.Thread != ""}, func() *sdk.Tool {
		input := schemaOf[In](t.input)
		if s.Thread != "" {
			delete(input.Properties, "thread")
		} else {
			input.Required = append(input.Required, "thread")
		}
		return &sdk.Tool{
			Name: t.name, Title: t.title, Description: t.description, InputSchema: input, OutputSchema: schemaOf[Out](nil),
			Annotations: &sdk.ToolAnnotations{
				Title: t.title, ReadOnlyHint: t.reads, DestructiveHint: &t.destroys, IdempotentHint: t.reads || t.repeats, OpenWorldHint: &t.world,
			},
		}
	})
	sdk.AddTool(s.sdk, entry, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		out, err := run(ctx, req, in)
		if err != nil {
			return nil, out, coded(err)
		}
		return nil, out, nil
	})
}
