package main

import (
	"encoding/json"
	"maps"
	"reflect"
	"strconv"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-dev/sluice/schemas"
)

// root is a type of the contract that has a file.
type root struct {
	file string
	typ  reflect.Type
}

// roots lists the files. Each example's name begins with that of its file.
func roots() []root {
	return []root{
		{"command", reflect.TypeFor[schemas.Command]()},
		{"event", reflect.TypeFor[schemas.Event]()},
		{"accepted", reflect.TypeFor[schemas.Accepted]()},
		{"started", reflect.TypeFor[schemas.Started]()},
		{"result", reflect.TypeFor[schemas.Result]()},
		{"session", reflect.TypeFor[schemas.Session]()},
		{"sandbox", reflect.TypeFor[schemas.SandboxInfo]()},
		{"message", reflect.TypeFor[schemas.Message]()},
		{"stream-finish", reflect.TypeFor[schemas.StreamFinish]()},
		{"hook-data", reflect.TypeFor[schemas.HookData]()},
		{"hook-run", reflect.TypeFor[schemas.HookRun]()},
		{"cold-start", reflect.TypeFor[schemas.ColdStart]()},
		{"sync-report", reflect.TypeFor[schemas.SyncReport]()},
		{"template", reflect.TypeFor[schemas.Template]()},
		{"log-gap", reflect.TypeFor[schemas.LogGap]()},
		{"error", reflect.TypeFor[schemas.Error]()},
		{"signal", reflect.TypeFor[schemas.SignalRequest]()},
		{"kill", reflect.TypeFor[schemas.KillRequest]()},
		{"stop", reflect.TypeFor[schemas.StopRequest]()},
		{"start", reflect.TypeFor[schemas.StartRequest]()},
		{"renew", reflect.TypeFor[schemas.RenewRequest]()},
		{"session-reply", reflect.TypeFor[schemas.SessionReply]()},
		{"place-request", reflect.TypeFor[schemas.PlaceRequest]()},
		{"place-reply", reflect.TypeFor[schemas.PlaceReply]()},
	}
}

// closed returns the types that callers send, in which a misspelled field must not be ignored.
func closed() map[reflect.Type]bool {
	return map[reflect.Type]bool{
		reflect.TypeFor[schemas.Command]():        true,
		reflect.TypeFor[schemas.Exec]():           true,
		reflect.TypeFor[schemas.MessageRequest](): true,
		reflect.TypeFor[schemas.SignalRequest]():  true,
		reflect.TypeFor[schemas.KillRequest]():    true,
		reflect.TypeFor[schemas.StopRequest]():    true,
		reflect.TypeFor[schemas.StartRequest]():   true,
		reflect.TypeFor[schemas.RenewRequest]():   true,
		reflect.TypeFor[schemas.PlaceRequest]():   true,
	}
}

// leaves returns the schemas that reflection cannot derive: the format of a time, the base64 of bytes, the values of a named
// string.
func leaves() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():         {Type: "string", Format: "date-time"},
		reflect.TypeFor[[]byte]():            {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[json.RawMessage]():   {},
		reflect.TypeFor[schemas.Op]():        enum(schemas.Ops()),
		reflect.TypeFor[schemas.Code]():      enum(schemas.Codes()),
		reflect.TypeFor[schemas.EventType](): enum(schemas.EventTypes()),
		reflect.TypeFor[schemas.Stream]():    enum(schemas.Streams()),
		reflect.TypeFor[schemas.Reason]():    enum(schemas.Reasons()),
		// Validation accepts an empty string as the default.
		reflect.TypeFor[schemas.Retry]():    enum(append([]schemas.Retry{""}, schemas.Retries()...)),
		reflect.TypeFor[schemas.Encoding](): enum(schemas.Encodings()),

		reflect.TypeFor[schemas.SandboxState](): enum(schemas.SandboxStates()),
		reflect.TypeFor[schemas.Phase]():        enum(schemas.Phases()),
		reflect.TypeFor[schemas.Role]():         enum(schemas.Roles()),
		reflect.TypeFor[schemas.Network]():      enum(schemas.Networks()),
	}
}

func enum[T ~string](values []T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// rule adds to a field's schema what its Go type does not express.
type rule func(*jsonschema.Schema)

// rules returns the limits that package schemas checks, by Type.Field. In patterns, \x00 is the form of NUL that both ECMAScript
// and RE2 accept.
func rules() map[string]rule {
	out := map[string]rule{}
	for _, part := range []map[string]rule{callerRules(), workerRules(), templateRules()} {
		maps.Copy(out, part)
	}
	return out
}

func text(s *jsonschema.Schema) { s.Pattern = `^[^\x00]*$` }

// label limits a text to so many characters.
func label(limit int) rule {
	return func(s *jsonschema.Schema) {
		text(s)
		length(0, limit)(s)
	}
}

// environment restricts the names of variables.
func environment(s *jsonschema.Schema) {
	s.PropertyNames = &jsonschema.Schema{Pattern: `^[^=\x00]+$`, Not: &jsonschema.Schema{Pattern: `^SLUICE_`}}
}

// image allows the names that checkImage in package schemas allows.
func image(s *jsonschema.Schema) {
	s.Pattern = `^[!-~]*$`
	length(0, schemas.MaxImageBytes)(s)
}

// callerRules returns the rules of what callers send.
func callerRules() map[string]rule {
	millis := between(0, schemas.MaxTimeoutMS)
	limit := func(s *jsonschema.Schema) {
		between(0, schemas.MaxOutputLimit)(s)
		s.Default = json.RawMessage(strconv.FormatInt(schemas.DefaultOutputLimit, 10))
	}
	return map[string]rule{
		"Command.SpecVersion": constant(schemas.Version),
		"Command.Thread":      id(1),
		"Command.Key":         length(1, schemas.MaxKeyBytes),
		"Command.Provider":    id(0),
		"Command.Image":       image,
		"Command.Template":    id(0),
		"Command.Session":     id(0),
		"Exec.Command": func(s *jsonschema.Schema) {
			text(s)
			length(1, schemas.MaxPathBytes)(s)
		},
		"Exec.Args": func(s *jsonschema.Schema) { text(s.Items) },
		"Exec.Env": func(s *jsonschema.Schema) {
			environment(s)
			text(s.AdditionalProperties)
		},
		"Exec.Cwd":         label(schemas.MaxPathBytes),
		"Exec.TimeoutMS":   millis,
		"Exec.GraceMS":     millis,
		"Exec.OutputLimit": limit,

		"MessageRequest.Prompt": func(s *jsonschema.Schema) {
			text(s)
			length(1, schemas.MaxPromptBytes)(s)
		},
		"MessageRequest.User":        label(schemas.MaxUserBytes),
		"MessageRequest.TimeoutMS":   millis,
		"MessageRequest.OutputLimit": limit,

		"SignalRequest.Signal":       func(s *jsonschema.Schema) { s.Pattern = schemas.SignalPattern },
		"KillRequest.GraceMS":        millis,
		"StopRequest.Session":        id(0),
		"StopRequest.GraceMS":        millis,
		"StartRequest.Session":       id(0),
		"RenewRequest.Session":       id(0),
		"RenewRequest.IdleTimeoutMS": millis,
		"PlaceRequest.Thread":        id(1),
		"PlaceRequest.Provider":      id(0),
		"PlaceRequest.Image":         image,
		"PlaceRequest.Template":      id(0),
		"PlaceRequest.User":          label(schemas.MaxUserBytes),
		"PlaceRequest.Tags": func(s *jsonschema.Schema) {
			most := schemas.MaxTags
			s.MaxProperties = &most
			s.PropertyNames = &jsonschema.Schema{}
			length(1, schemas.MaxTagBytes)(s.PropertyNames)
			text(s.PropertyNames)
			label(schemas.MaxTagBytes)(s.AdditionalProperties)
		},
		"PlaceRequest.IdleTimeoutMS": millis,
		"PlaceRequest.MaxLifetimeMS": millis,
	}
}

// workerRules returns the rules of what workers send.
func workerRules() map[string]rule {
	fingerprint := func(s *jsonschema.Schema) { s.Pattern = `^[0-9a-f]{64}$` }
	positive := between(0, -1)
	return map[string]rule{
		"Event.SpecVersion":     constant(schemas.EventSpecVersion),
		"Event.ID":              id(1),
		"Event.Source":          id(1),
		"Event.Process":         id(1),
		"Event.Session":         id(1),
		"Accepted.Fingerprint":  fingerprint,
		"Accepted.TimeoutMS":    positive,
		"Started.Fingerprint":   fingerprint,
		"Started.PID":           positive,
		"Result.Process":        id(0),
		"Result.ExitCode":       between(0, 255),
		"Result.Signal":         positive,
		"Result.StdoutBytes":    positive,
		"Result.StderrBytes":    positive,
		"Result.DurationMS":     positive,
		"Result.UserMS":         positive,
		"Result.SystemMS":       positive,
		"Result.MaxRSSBytes":    positive,
		"Result.Killed":         positive,
		"Result.Fingerprint":    fingerprint,
		"Result.Worker":         id(1),
		"LogRange.Chunks":       between(1, -1),
		"Session.ID":            id(1),
		"Session.Tenant":        id(1),
		"Session.Thread":        id(1),
		"Session.Owner":         id(1),
		"SandboxInfo.ID":        id(1),
		"SandboxInfo.StartMS":   positive,
		"LogGap.From":           positive,
		"LogGap.To":             between(-1, -1),
		"PlaceReply.Worker":     id(1),
		"Session.Template":      id(1),
		"Session.Messages":      positive,
		"Usage.InputTokens":     positive,
		"Usage.OutputTokens":    positive,
		"Message.Thread":        id(1),
		"Message.Session":       id(1),
		"Message.Process":       id(1),
		"Message.Template":      id(1),
		"StreamFinish.Process":  id(1),
		"HookData.SpecVersion":  constant(schemas.Version),
		"Conversation.Tenant":   id(1),
		"Conversation.Thread":   id(1),
		"Conversation.Template": id(1),
		"Conversation.Session":  id(1),
		"HookRun.Attempt":       between(1, -1),
		"HookRun.DurationMS":    positive,
		"ColdStart.Sandbox":     id(1),
		"ColdStart.SandboxMS":   positive,
		"ColdStart.HooksMS":     positive,
		"SyncReport.Files":      positive,
		"SyncReport.Bytes":      positive,
		"SyncReport.Deleted":    positive,
		"SyncReport.DurationMS": positive,
	}
}

// templateRules returns the rules of templates, for those who read templates from KV. Workers read YAML, and check it with
// Template.Validate alone.
func templateRules() map[string]rule {
	millis := between(0, schemas.MaxTimeoutMS)
	positive := between(0, -1)
	words := func(s *jsonschema.Schema) {
		least := 1
		s.MinItems = &least
		text(s.Items)
	}
	return map[string]rule{
		"Template.Name":     id(1),
		"Template.Provider": values(schemas.TemplateProviders()),
		"Template.Image":    image,
		"Template.Env": func(s *jsonschema.Schema) {
			environment(s)
			text(s.AdditionalProperties)
		},
		"Template.Secrets": environment,
		"Template.Hooks":   func(s *jsonschema.Schema) { s.PropertyNames = enum(schemas.Phases()) },

		"TemplateLimits.MemoryBytes":     positive,
		"TemplateLimits.CPUs":            positive,
		"TemplateLimits.PIDs":            positive,
		"TemplateLimits.TmpBytes":        positive,
		"TemplateLimits.WorkspaceBytes":  positive,
		"TemplateLimits.WorkspaceFiles":  positive,
		"TemplateSession.IdleTimeoutMS":  millis,
		"TemplateSession.ParkAfterMS":    millis,
		"TemplateSession.MaxLifetimeMS":  millis,
		"TemplateSession.StartTimeoutMS": millis,
		"TemplateSession.StopGraceMS":    millis,
		"TemplateSync.Layout":            values(schemas.SyncLayouts()),
		"TemplateSync.OnConflict":        values(schemas.SyncConflicts()),
		"TemplateAgent.Command":          words,
		"TemplateAgent.TimeoutMS":        millis,
		"TemplateAgent.Output":           values(schemas.AgentOutputs()),
		"TemplatePolicy.Name":            values(schemas.PolicyNames()),
		"HookSpec.Builtin":               values(schemas.BuiltinHooks()),
		"HookSpec.Command":               words,
		"HookSpec.TimeoutMS":             between(0, schemas.MaxHookTimeoutMS),
	}
}

// values lists the allowed values of a text.
func values(of []string) rule {
	return func(s *jsonschema.Schema) { s.Enum = enum(of).Enum }
}

// id is the pattern of [schemas.ValidID]. With least 0, the field may be empty.
func id(least int) rule {
	return func(s *jsonschema.Schema) {
		s.Pattern = `^[A-Za-z0-9_-]{` + strconv.Itoa(least) + `,` + strconv.Itoa(schemas.MaxIDLength) + `}$`
	}
}

// length limits the number of characters. Validation counts bytes, which JSON Schema cannot; it is never less strict.
func length(least, most int) rule {
	return func(s *jsonschema.Schema) { s.MinLength, s.MaxLength = &least, &most }
}

// between limits a number. A negative most is no limit.
func between(least, most int64) rule {
	return func(s *jsonschema.Schema) {
		low, high := float64(least), float64(most)
		s.Minimum = &low
		if most >= 0 {
			s.Maximum = &high
		}
	}
}

func constant(v any) rule {
	return func(s *jsonschema.Schema) { s.Const = &v }
}
