package gateway

import (
	"bytes"
	"cmp"
	_ "embed" // the description
	"encoding/json"
	"html/template"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-dev/sluice/schemas"
)

//go:generate go run ./internal/openapi openapi.json

// openAPI describes /v1 by OpenAPI 3.1. Only the fields that it uses are here.
type openAPI struct {
	OpenAPI    string                          `json:"openapi"`
	Info       map[string]string               `json:"info"`
	Security   []map[string][]string           `json:"security"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		SecuritySchemes map[string]any                `json:"securitySchemes"`
		Schemas         map[string]*jsonschema.Schema `json:"schemas"`
	} `json:"components"`
	comments Comments
}

type operation struct {
	OperationID string             `json:"operationId"`
	Summary     string             `json:"summary"`
	Description string             `json:"description"`
	Parameters  []parameter        `json:"parameters,omitempty"`
	RequestBody *content           `json:"requestBody,omitempty"`
	Responses   map[string]content `json:"responses"`
	// Messages are those of a WebSocket, which OpenAPI has no field for.
	Messages []*jsonschema.Schema `json:"x-websocket-messages,omitempty"`
}

type parameter struct {
	Name        string            `json:"name"`
	In          string            `json:"in"`
	Required    bool              `json:"required,omitempty"`
	Description string            `json:"description,omitempty"`
	Schema      map[string]string `json:"schema"`
}

type content struct {
	Description string               `json:"description,omitempty"`
	Required    bool                 `json:"required,omitempty"`
	Content     map[string]mediaType `json:"content,omitempty"`
}

type mediaType struct {
	Schema *jsonschema.Schema `json:"schema"`
}

// errorAnswer is the shape of every error.
type errorAnswer struct {
	// Error is what happened, in words.
	Error string `json:"error"`
	// Code is what to decide by; see docs/contract.md.
	Code schemas.Code `json:"code"`
	// Details are facts for programs, such as the path of a field.
	Details map[string]string `json:"details,omitempty"`
	// RequestID is also in the header X-Request-Id, and in the gateway's log.
	RequestID string `json:"request_id"`
}

//go:embed openapi.json
var document []byte

// Document returns the description of /v1 in OpenAPI 3.1, which [Describe] has made.
func Document() []byte { return bytes.Clone(document) }

// Comments returns the comment of a field of a struct, or that of the struct for no field.
type Comments func(t reflect.Type, field string) string

// Describe makes the description of /v1 from its routes, their types and the comments of these.
func Describe(comments Comments) ([]byte, error) {
	doc, err := describe(v1Endpoints(), comments)
	if err != nil {
		return nil, err
	}
	body, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode the description of /v1: %w", err)
	}
	return append(body, '\n'), nil
}

func describe(endpoints []endpoint, comments Comments) (*openAPI, error) {
	doc := &openAPI{
		OpenAPI: "3.1.0", Info: map[string]string{"title": "Sluice", "version": "1",
			"description": "Commands, sessions and files of threads. See docs/http.md."},
		Security: []map[string][]string{{"token": {}}}, Paths: map[string]map[string]operation{}, comments: comments,
	}
	doc.Components.SecuritySchemes = map[string]any{"token": map[string]string{"type": "http", "scheme": "bearer"}}
	doc.Components.Schemas = map[string]*jsonschema.Schema{}
	for _, e := range endpoints {
		method, path, _ := strings.Cut(e.pattern, " ")
		path = strings.ReplaceAll(path, "...}", "}")
		op, err := doc.operation(e, method, path)
		if err != nil {
			return nil, err
		}
		if doc.Paths[path] == nil {
			doc.Paths[path] = map[string]operation{}
		}
		doc.Paths[path][strings.ToLower(method)] = op
	}
	return doc, nil
}

func (d *openAPI) operation(e endpoint, method, path string) (op operation, err error) {
	op = operation{
		OperationID: operationID(method, path), Summary: e.summary, Description: "Needs a token of scope " + string(e.scope) + ".",
		Responses: map[string]content{},
	}
	for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
		op.Parameters = append(op.Parameters, parameter{
			Name: m[1], In: "path", Required: true, Description: pathParameters[m[1]], Schema: map[string]string{"type": "string"},
		})
	}
	for _, q := range e.query {
		name, about, _ := strings.Cut(q, ": ")
		op.Parameters = append(op.Parameters, parameter{Name: name, In: "query", Description: about, Schema: map[string]string{"type": "string"}})
	}
	if e.body != nil || e.content != "" {
		op.RequestBody = &content{Required: true}
		if op.RequestBody.Content, err = d.media(e.body, e.content, true); err != nil {
			return op, err
		}
	}
	status := cmp.Or(e.status, http.StatusOK)
	if e.messages != nil {
		status = http.StatusSwitchingProtocols
		op.Description += " Open it with a WebSocket handshake, of subprotocol " + terminalProtocol + "; docs/http.md has the messages."
	}
	for _, m := range e.messages {
		body, err := d.media(m, "", false)
		if err != nil {
			return op, err
		}
		op.Messages = append(op.Messages, body["application/json"].Schema)
	}
	good := content{Description: http.StatusText(status)}
	if good.Content, err = d.media(e.answer, e.gives, false); err != nil {
		return op, err
	}
	if e.events {
		good.Content["text/event-stream"] = mediaType{&jsonschema.Schema{Type: "string"}}
	}
	op.Responses[strconv.Itoa(status)] = good
	bad := content{Description: "An error"}
	bad.Content, err = d.media(errorAnswer{}, "", false)
	op.Responses["default"] = bad
	return op, err
}

// operationID is a name such as getSessions or postThreadsThreadExec.
func operationID(method, path string) string {
	id := strings.ToLower(method)
	for _, part := range regexp.MustCompile(`\w+`).FindAllString(strings.TrimPrefix(path, "/v1"), -1) {
		id += strings.ToUpper(part[:1]) + part[1:]
	}
	return id
}

// media is a body: a value's type, or bytes.
func (d *openAPI) media(v any, kind string, strict bool) (map[string]mediaType, error) {
	if kind != "" {
		return map[string]mediaType{kind: {&jsonschema.Schema{Type: "string"}}}, nil
	}
	if v == nil {
		return map[string]mediaType{}, nil
	}
	t := reflect.TypeOf(v)
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if d.Components.Schemas[name] == nil {
		s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[time.Time](): {Type: "string", Format: "date-time"}, reflect.TypeFor[json.RawMessage](): {},
			reflect.TypeFor[[]byte](): {Type: "string", ContentEncoding: "base64"},
		}})
		if err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "describe %s: %w", name, err)
		}
		if !strict {
			open(s)
		}
		d.annotate(s, t)
		d.Components.Schemas[name] = s
	}
	return map[string]mediaType{"application/json": {&jsonschema.Schema{Ref: "#/components/schemas/" + name}}}, nil
}

// pathParameters describes what paths name.
var pathParameters = map[string]string{
	"thread":  "The thread: 1 to 128 letters, digits, - and _",
	"process": "The id of the process; below a thread also the key of its command",
	"path":    "A path relative to the workspace; empty for the workspace itself",
	"name":    "The name of the template, or of the service",
	"id":      "The id of the token",
}

// annotate describes a schema and its fields by the comments of their type.
func (d *openAPI) annotate(s *jsonschema.Schema, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		d.annotate(s, t.Elem())
	case reflect.Map:
		if s.AdditionalProperties != nil {
			d.annotate(s.AdditionalProperties, t.Elem())
		}
	case reflect.Slice:
		if s.Items != nil {
			d.annotate(s.Items, t.Elem())
		}
	case reflect.Struct:
		if s.Description == "" {
			s.Description = d.comments(t, "")
		}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if p := s.Properties[name]; p != nil {
				owner := t
				for _, i := range f.Index[:len(f.Index)-1] {
					owner = owner.Field(i).Type
				}
				p.Description = d.comments(owner, f.Name)
				d.annotate(p, f.Type)
			}
		}
	}
}

// open allows further fields: an answer may get them in a later version.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Type == "object" && len(s.Properties) > 0 {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		open(p)
	}
	open(s.Items)
}

func serveDocument(c *call) error {
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(document)
	return nil
}

const page = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sluice /v1</title>
<h1>Sluice /v1</h1>
<p>Send <code>Authorization: Bearer TOKEN</code>. The same as <a href="openapi.json">OpenAPI 3.1</a>.</p>
{{range $path, $methods := .Paths}}{{range $method, $op := $methods}}
<h2><code>{{$method}} {{$path}}</code></h2>
<p>{{$op.Summary}}. {{$op.Description}}</p>
{{with $op.Parameters}}<ul>{{range .}}<li><code>{{.Name}}</code> ({{.In}}){{with .Description}}: {{.}}{{end}}</li>{{end}}</ul>{{end}}
{{with $op.RequestBody}}<p>Body: {{range $type, $m := .Content}}{{$type}} <code>{{$m.Schema.Ref}}</code>{{end}}</p>{{end}}
<ul>{{range $status, $r := $op.Responses}}<li>{{$status}}: {{$r.Description}}
{{range $type, $m := $r.Content}}{{$type}} <code>{{$m.Schema.Ref}}</code> {{end}}</li>{{end}}</ul>
{{end}}{{end}}
{{range $name, $schema := .Components.Schemas}}<h2>{{$name}}</h2><pre>{{json $schema}}</pre>
{{end}}</html>
`

// servePage is the description as a page.
func servePage(c *call) error {
	var doc openAPI
	if err := json.Unmarshal(document, &doc); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "the page of /v1: %w", err)
	}
	t, err := template.New("").Funcs(template.FuncMap{"json": func(v any) (string, error) {
		body, err := json.MarshalIndent(v, "", "  ")
		return string(body), err
	}}).Parse(page)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "the page of /v1: %w", err)
	}
	var body bytes.Buffer
	if err := t.Execute(&body, &doc); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "the page of /v1: %w", err)
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	_, _ = c.w.Write(body.Bytes())
	return nil
}
