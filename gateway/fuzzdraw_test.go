package gateway_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
)

// apiSchema is what a request is drawn from: a part of JSON Schema.
type apiSchema struct {
	Ref        string                `json:"$ref"`
	Type       any                   `json:"type"`
	Properties map[string]*apiSchema `json:"properties"`
	Items      *apiSchema            `json:"items"`
	Required   []string              `json:"required"`
	Encoding   string                `json:"contentEncoding"`
}

// UnmarshalJSON decodes a schema; true is one that allows everything.
func (s *apiSchema) UnmarshalJSON(p []byte) error {
	type plain apiSchema
	if string(p) == "true" || string(p) == "false" {
		return nil
	}
	return json.Unmarshal(p, (*plain)(s))
}

// is reports that the schema allows a type.
func (s *apiSchema) is(kind string) bool {
	if list, ok := s.Type.([]any); ok {
		return slices.Contains(list, any(kind))
	}
	return s.Type == kind
}

// apiOperation is an endpoint that requests are drawn for.
type apiOperation struct {
	method, path string
	query        []string
	media        string     // of the body; empty for none
	body         *apiSchema // of JSON
}

// apiOperations are the endpoints of the OpenAPI document, and those that were documented before it.
func apiOperations(t testing.TB) (list []apiOperation) {
	t.Helper()
	text := gateway.Document()
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters  []struct{ Name, In string }
			RequestBody struct {
				Content map[string]struct{ Schema *apiSchema }
			}
		}
		Components struct{ Schemas map[string]*apiSchema }
	}
	testkit.Must(t, json.Unmarshal(text, &doc))
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			described := doc.Paths[path][method]
			op := apiOperation{method: strings.ToUpper(method), path: path}
			for _, p := range described.Parameters {
				if p.In == "query" {
					op.query = append(op.query, p.Name)
				}
			}
			for media, content := range described.RequestBody.Content {
				op.media, op.body = media, content.Schema
				if name, ok := strings.CutPrefix(content.Schema.Ref, "#/components/schemas/"); ok {
					op.body = doc.Components.Schemas[name]
				}
			}
			list = append(list, op)
		}
	}
	return append(list, documentedOperations()...)
}

// documentedOperations are the endpoints of docs/http.md that are not of /v1.
func documentedOperations() []apiOperation {
	text, number, flag := &apiSchema{Type: "string"}, &apiSchema{Type: "integer"}, &apiSchema{Type: "boolean"}
	object := func(fields map[string]*apiSchema, required ...string) *apiSchema {
		return &apiSchema{Type: "object", Properties: fields, Required: required}
	}
	const kind = "application/json"
	start := map[string]*apiSchema{
		"command": text, "args": {Type: "array", Items: text}, "processId": text, "sessionId": text, "env": {Type: "object"}, "cwd": text,
	}
	process, service := maps.Clone(start), maps.Clone(start)
	process["autoCleanup"], process["timeout"] = flag, number
	service["healthCheck"] = object(map[string]*apiSchema{"port": number, "path": text, "interval": number})
	prompt := object(map[string]*apiSchema{"prompt": text, "agent_id": text}, "prompt")
	return []apiOperation{
		{"POST", "/create_session", nil, kind,
			object(map[string]*apiSchema{"user_id": text, "thread_id": text, "timeout_minutes": number}, "user_id", "thread_id")},
		{"GET", "/get_session", []string{"thread_id"}, "", nil},
		{"POST", "/execute", nil, kind,
			object(map[string]*apiSchema{"session_id": text, "command": text, "timeout": number}, "session_id", "command")},
		{"POST", "/upload_file", nil, "multipart/form-data; boundary=b", nil},
		{"POST", "/download_file", nil, kind, object(map[string]*apiSchema{"session_id": text, "filename": text}, "session_id", "filename")},
		{"GET", "/list_files", []string{"session_id"}, "", nil},
		{"POST", "/cleanup", nil, kind, object(map[string]*apiSchema{"session_id": text}, "session_id")},
		{"POST", "/api/process/start", nil, kind, object(process, "command")},
		{"GET", "/api/process/list", []string{"sessionId", "limit"}, "", nil},
		{"GET", "/api/process/{process}", []string{"sessionId"}, "", nil},
		{"DELETE", "/api/process/{process}", []string{"sessionId", "signal"}, "", nil},
		{"GET", "/api/process/{process}/logs", []string{"sessionId"}, "", nil},
		{"GET", "/api/process/{process}/stream", []string{"sessionId"}, "", nil},
		{"POST", "/api/service/start", nil, kind, object(service, "command")},
		{"GET", "/api/sandbox/status", nil, "", nil},
		{"GET", "/api/sandbox/logs", []string{"tail"}, "", nil},
		{"POST", "/conversation/{thread}/sandbox/{sandbox}", nil, kind, prompt},
		{"POST", "/sandboxes/{thread}/claude", nil, kind, prompt},
		{"GET", "/health", nil, "", nil}, {"GET", "/v1/docs", nil, "", nil}, {"GET", "/v1/openapi.json", nil, "", nil},
	}
}

// draws makes choices from the bytes of an input. Where it has no more, the choice is the first one, which is the plain one.
type draws struct {
	data     []byte
	sessions func() string // the id of a session that may exist
	process  func() string // the id of a process
}

func (d *draws) number(below int) int {
	if len(d.data) == 0 {
		return 0
	}
	n := int(d.data[0])
	d.data = d.data[1:]
	return n % below
}

// rarely is true for one of 16 values of a byte.
func (d *draws) rarely() bool { return d.number(16) == 15 }

func (d *draws) of(list ...string) string { return list[d.number(len(list))] }

// wild is text that endpoints should refuse, or take as it is.
func (d *draws) wild() string {
	return d.of("x", "", "a\r\nX-Evil: 1", "a\x00b", "../../etc/passwd", "/etc/passwd", "..", ".", "a/../../b", "%2e%2e%2f", "a.>", "*", "$SYS", " ",
		"\xff\xfe", "\u202egnp", "<script>alert(1)</script>", "😀", strings.Repeat("x", 300), strings.Repeat("a/", 3000), strings.Repeat("y", 70_000),
		"-1", "9223372036854775808", "1e400", "null", "{{.}}", "'; --", "\x1b[2J", "C:\\x", "~", "-rf", "a\nb", strings.Repeat("../", 50), "con")
}

// named is a plausible value for a field, a parameter or a part of a path; no command of it has an effect outside its workspace.
func (d *draws) named(name string) string {
	switch name {
	case "command":
		return d.of("true", "echo", "false", "printf", "true", "nosuchprogram", "", "./x", "tr\x00ue", "true\r\n", strings.Repeat("x", 5000))
	case "session_id":
		if !d.rarely() {
			return d.sessions()
		}
	case "process", "id", "processId", "stdin_from":
		if !d.rarely() {
			return d.of(d.process(), "p1", "none")
		}
	case "thread", "thread_id", "sessionId", "sandbox":
		if !d.rarely() {
			return d.of("t1", "t2", "t3", "default", "none")
		}
	case "path", "filename", "from", "to", "cwd":
		if d.number(4) < 3 {
			return d.of("a", "d/b", "d", "", "a/b/c", "new")
		}
	case "template", "agent_id", "name":
		if !d.rarely() {
			return d.of("documents", "echo-agent", "none", "")
		}
	case "scope":
		return d.of("read", "exec", "admin", "root")
	case "provider":
		return d.of("", "local", "none")
	case "limit", "tail", "before", "grace_ms", "signal", "mode", "recursive", "all", "snapshot", "delete", "state":
		return d.of("", "1", "true", "0", "10000", "100000", "SIGTERM", "644", "-1", "18446744073709551616", "1e3", "0x1", "running", "SIGKILL", "99999999999")
	case "key":
		return d.of("", "k1", "k2", strings.Repeat("k", 257))
	}
	return d.wild()
}

// json draws the JSON of a value.
func (d *draws) json(s *apiSchema, name string, depth int) string {
	if depth > 6 {
		return "null"
	}
	if d.rarely() {
		return d.of("null", "[]", "{}", `""`, "1", "true", "-1", "1e400", "9223372036854775807", "0.5", strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000),
			strings.Repeat(`{"a":`, 20_000)+"1"+strings.Repeat("}", 20_000), "\"\\ud800\"", `"\u0000"`, "nul", "[1,", "\"", "'a'", "NaN")
	}
	quote := func(text string) string {
		body, _ := json.Marshal(text) // it is text
		return string(body)
	}
	switch {
	case s.is("object") && s.Properties == nil:
		return d.of("{}", `{"A":"b"}`, `{"A":"b","A":"c"}`, `{"":"x"}`, `{"A=B":"x"}`, `{"A":"\u0000"}`, `{"A":1}`, `{"`+strings.Repeat("k", 300)+`":"x"}`)
	case s.is("object"):
		var fields []string
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, field) != d.rarely() || d.number(8) == 7 {
				fields = append(fields, quote(field)+":"+d.json(s.Properties[field], field, depth+1))
			}
		}
		if d.rarely() && len(fields) > 0 {
			fields = append(fields, fields[d.number(len(fields))])
		}
		if d.rarely() {
			fields = append(fields, quote(d.wild())+":1")
		}
		return "{" + strings.Join(fields, ",") + "}"
	case s.is("array"):
		items := make([]string, d.number(4))
		for i := range items {
			items[i] = d.json(s.Items, "item", depth+1)
		}
		return "[" + strings.Join(items, ",") + "]"
	case s.is("integer"):
		return d.of("1000", "1", "0", "-1", "2592000000", "2592000001", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.5", "1e3", "65536")
	case s.is("boolean"):
		return d.of("true", "false", `"true"`)
	case s.Encoding == "base64":
		return d.of(`""`, `"aGk="`, `"!"`, `"`+strings.Repeat("QUFB", 1000)+`"`)
	default:
		return quote(d.named(name))
	}
}

// request draws the bytes of a request, and what they hold.
func (d *draws) request(op *apiOperation, token string) (text, method string, cut bool) {
	method = op.method
	if d.rarely() {
		method = d.of("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW", "g et", "GET\x00")
	}
	var target strings.Builder
	for i, part := range strings.Split(op.path, "{") {
		if i > 0 {
			name, rest, _ := strings.Cut(part, "}")
			value := d.named(name)
			if !d.rarely() { // otherwise its slashes, spaces and line ends are those of the request
				value = strings.ReplaceAll(url.PathEscape(value), "%2F", "/")
			}
			target.WriteString(value)
			part = rest
		}
		target.WriteString(part)
	}
	for i, name := range op.query {
		if d.number(3) == 2 {
			continue
		}
		fmt.Fprintf(&target, "%c%s=%s", "?&"[min(i, 1)], name, url.QueryEscape(d.named(name)))
	}
	if d.rarely() {
		target.WriteString(d.of("?", "?;", "?%zz", "?a=%00&a=b", "#x", "?"+strings.Repeat("a=b&", 3000), "/", "//", "/..", "/../../health", "%00", "%2f..%2f"))
	}
	media, body := op.media, ""
	switch {
	case op.body != nil && strings.HasPrefix(media, "application/json"):
		body = d.json(op.body, "", 0)
	case strings.HasPrefix(media, "multipart/"):
		body = d.form()
	case media == "application/x-tar":
		body = d.archive()
	case media != "":
		body = d.of("content", "", strings.Repeat("x", 200_000))
	}
	if d.rarely() {
		media = d.of("", "text/plain", "application/json", "multipart/form-data", "multipart/form-data; boundary="+strings.Repeat("b", 100), "application/json; charset=x; ;", "\x00")
	}
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, &target, d.hostOr("127.0.0.1"))
	if !d.rarely() {
		head.WriteString("Authorization: Bearer " + token + "\r\n")
	}
	if media != "" {
		head.WriteString("Content-Type: " + media + "\r\n")
	}
	for range d.number(3) {
		head.WriteString(d.of("Accept: text/event-stream", "Last-Event-ID: 1-0-0", "Last-Event-ID: 18446744073709551615-9223372036854775807-0",
			"Last-Event-ID: 9223372036854775807", "Last-Event-ID: end", "Last-Event-ID: \xff", "Range: bytes=0-0", "Range: bytes=-1,5-1", "Expect: 100-continue",
			"Expect: x", "Upgrade: h2c\r\nConnection: Upgrade", "Accept-Encoding: gzip", "traceparent: 00-"+strings.Repeat("a", 32)+"-"+strings.Repeat("b", 16)+"-01",
			"traceparent: x", "X: "+strings.Repeat("x", 40_000), " folded: x", "Content-Encoding: gzip", "Origin: null", "Authorization: Basic eA==",
			"If-None-Match: *", "X-Http-Method-Override: DELETE", "Cookie: a=b", "X : y", "Content-Length: 3") + "\r\n")
	}
	if !d.rarely() {
		head.WriteString("Connection: close\r\n")
	}
	switch length := d.number(16); {
	case length < 13:
		fmt.Fprintf(&head, "Content-Length: %d\r\n\r\n%s", len(body), body)
	case length == 13:
		fmt.Fprintf(&head, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", max(len(body), 1), body+"x"[:1-min(len(body), 1)])
	case length == 14:
		fmt.Fprintf(&head, "Content-Length: %d\r\n\r\n%s", len(body)+10, body)
		cut = true
	default:
		fmt.Fprintf(&head, "Transfer-Encoding: chunked\r\n\r\n%s\r\n%s", d.of("5", "ffffffffffffffff", "-1", "zz"), body)
		cut = true
	}
	return head.String(), method, cut
}

func (d *draws) hostOr(host string) string {
	if d.rarely() {
		return d.of("localhost", "attacker.example", "", "[::1]:99999", "127.0.0.1:0", "a b", "127.0.0.1\x00")
	}
	return host
}

// form draws a form with a file, whose boundary is b.
func (d *draws) form() string {
	var body strings.Builder
	for range 2 + d.number(3) {
		name := d.of("session_id", "file", "filename", "session_id", "file", "other", "")
		value := d.named(name)
		if name == "file" {
			value = d.of("content", "", strings.Repeat("x", 100_000))
			name += `"; filename="` + d.named("filename")
		}
		fmt.Fprintf(&body, "--b\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n", name, value)
	}
	return body.String() + d.of("--b--\r\n", "--b--\r\n", "", "--b", "--c--\r\n")
}

// archive draws a tar.
func (d *draws) archive() string {
	var body bytes.Buffer
	w := tar.NewWriter(&body)
	for range d.number(4) {
		h := tar.Header{Name: d.named("path"), Mode: 0o644, Typeflag: "00512346gxS\x00"[d.number(12)], Linkname: d.of("a", "../../etc", "/etc/passwd", "")}
		content := d.of("content", "", "x")
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if w.WriteHeader(&h) != nil { // what the format cannot hold
			continue
		}
		_, _ = w.Write([]byte(content)) // only a file has content
	}
	_ = w.Close()
	whole := body.String()
	switch d.number(8) {
	case 6:
		return whole[:len(whole)*d.number(100)/100]
	case 7:
		return strings.ReplaceAll(whole, "0000007", "7777777")
	}
	return whole
}
