package main

import (
	"encoding/json"
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
		{"resize", reflect.TypeFor[schemas.TerminalSize]()},
		{"cancel", reflect.TypeFor[schemas.CancelRequest]()},
		{"stop", reflect.TypeFor[schemas.StopRequest]()},
		{"start", reflect.TypeFor[schemas.StartRequest]()},
		{"sync", reflect.TypeFor[schemas.SyncRequest]()},
		{"renew", reflect.TypeFor[schemas.RenewRequest]()},
		{"service-request", reflect.TypeFor[schemas.ServiceRequest]()},
		{"service-reply", reflect.TypeFor[schemas.ServiceReply]()},
		{"service", reflect.TypeFor[schemas.Service]()},
		{"connect-request", reflect.TypeFor[schemas.ConnectRequest]()},
		{"connect-reply", reflect.TypeFor[schemas.ConnectReply]()},
		{"session-reply", reflect.TypeFor[schemas.SessionReply]()},
		{"place-request", reflect.TypeFor[schemas.PlaceRequest]()},
		{"workspace-removal", reflect.TypeFor[schemas.WorkspaceRemoval]()},
		{"place-reply", reflect.TypeFor[schemas.PlaceReply]()},
		{"processes-request", reflect.TypeFor[schemas.ProcessesRequest]()},
		{"processes-reply", reflect.TypeFor[schemas.ProcessesReply]()},
		{"clean-request", reflect.TypeFor[schemas.CleanRequest]()},
		{"clean-reply", reflect.TypeFor[schemas.CleanReply]()},
		{"processes-cleaned", reflect.TypeFor[schemas.ProcessesCleaned]()},
		{"file-request", reflect.TypeFor[schemas.FileRequest]()},
		{"file-reply", reflect.TypeFor[schemas.FileReply]()},
		{"file-transfer", reflect.TypeFor[schemas.FileTransfer]()},
	}
}

// closed returns the names of the types that callers send, in which a misspelled field must not be ignored.
func closed() []string {
	return []string{
		"Command", "Exec", "MessageRequest", "SignalRequest", "KillRequest", "TerminalSize", "CancelRequest", "StopRequest", "StartRequest", "RenewRequest", "SyncRequest", "PlaceRequest", "WorkspaceRemoval",
		"ProcessesRequest", "CleanRequest", "ServiceRequest", "ConnectRequest", "FileRequest",
	}
}

// leaves returns the schemas that reflection cannot derive: the format of a time, the base64 of bytes, the values of a named
// string.
func leaves() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():            {Type: "string", Format: "date-time"},
		reflect.TypeFor[[]byte]():               {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[json.RawMessage]():      {},
		reflect.TypeFor[schemas.Op]():           enum(schemas.Ops()),
		reflect.TypeFor[schemas.FileOp]():       enum(schemas.FileOps()),
		reflect.TypeFor[schemas.SyncOp]():       enum(schemas.SyncOps()),
		reflect.TypeFor[schemas.DiffOmission](): enum(schemas.DiffOmissions()),
		reflect.TypeFor[schemas.Code]():         enum(schemas.Codes()),
		reflect.TypeFor[schemas.EventType]():    enum(schemas.EventTypes()),
		reflect.TypeFor[schemas.Stream]():       enum(schemas.Streams()),
		reflect.TypeFor[schemas.Reason]():       enum(schemas.Reasons()),

		reflect.TypeFor[schemas.ProcessStatus](): enum(schemas.ProcessStatuses()),
		// Validation accepts an empty string as the default.
		reflect.TypeFor[schemas.Retry]():    enum(append([]schemas.Retry{""}, schemas.Retries()...)),
		reflect.TypeFor[schemas.Encoding](): enum(schemas.Encodings()),

		reflect.TypeFor[schemas.SandboxState](): enum(schemas.SandboxStates()),
		reflect.TypeFor[schemas.ServiceState](): enum(schemas.ServiceStates()),
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

// fields holds rules by Type.Field.
type fields map[string]rule

// add sets the rule of fields.
func (f fields) add(r rule, names ...string) {
	for _, name := range names {
		f[name] = r
	}
}

// rules returns the limits that package schemas checks, by Type.Field. In patterns, \x00 is the form of NUL that both ECMAScript
// and RE2 accept.
func rules() fields {
	f := fields{}
	f.addCaller()
	f.addWorker()
	f.addTemplate()
	return f
}

func text(s *jsonschema.Schema) { s.Pattern = `^[^\x00]*$` }

// label limits a text to so many characters.
func label(limit int) rule {
	return func(s *jsonschema.Schema) {
		text(s)
		length(0, limit)(s)
	}
}

// required is a label that must not be empty.
func required(limit int) rule {
	return func(s *jsonschema.Schema) {
		text(s)
		length(1, limit)(s)
	}
}

// variables restricts the names of variables, and their values to texts.
func variables(s *jsonschema.Schema) {
	environment(s)
	text(s.AdditionalProperties)
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

// addCaller adds the rules of what callers send.
func (f fields) addCaller() {
	f.add(constant(schemas.Version), "Command.SpecVersion")
	f.add(id(1), "Command.Thread", "PlaceRequest.Thread", "CancelRequest.Process", "WorkspaceRemoval.Thread", "CleanRequest.Thread", "ServiceRequest.Name", "ConnectRequest.Connection")
	f.add(id(0), "Command.Provider", "Command.Template", "Command.Session", "PlaceRequest.Provider", "PlaceRequest.Template",
		"StopRequest.Session", "StartRequest.Session", "RenewRequest.Session", "SyncRequest.Session", "ProcessesRequest.Thread", "ProcessesRequest.After", "ServiceRequest.Session",
		"FileRequest.Session")
	f.add(length(1, schemas.MaxKeyBytes), "Command.Key")
	f.add(image, "Command.Image", "PlaceRequest.Image")
	f.add(required(schemas.MaxPathBytes), "Exec.Command", "ServiceSpec.Command")
	f.add(func(s *jsonschema.Schema) { text(s.Items) }, "Exec.Args", "ServiceSpec.Args", "HealthCheck.Command")
	f.add(variables, "Exec.Env", "ServiceSpec.Env")
	f.add(label(schemas.MaxPathBytes), "Exec.Cwd", "ServiceSpec.Cwd")
	f.add(between(0, 65535), "HealthCheck.Port")
	f.add(between(1, 65535), "ConnectRequest.Port")
	f.add(label(schemas.MaxSocketPath), "HealthCheck.Socket")
	f.add(label(schemas.MaxHealthPath), "HealthCheck.Path")
	f.add(required(schemas.MaxPromptBytes), "MessageRequest.Prompt")
	f.add(label(schemas.MaxUserBytes), "MessageRequest.User", "PlaceRequest.User")
	f.add(between(0, schemas.MaxTimeoutMS), "Exec.TimeoutMS", "Exec.GraceMS", "MessageRequest.TimeoutMS", "KillRequest.GraceMS",
		"StopRequest.GraceMS", "RenewRequest.IdleTimeoutMS", "PlaceRequest.IdleTimeoutMS", "PlaceRequest.MaxLifetimeMS",
		"ServiceSpec.StartTimeoutMS", "ServiceSpec.GraceMS", "HealthCheck.IntervalMS", "HealthCheck.TimeoutMS", "FileRequest.TimeoutMS")
	f.add(func(s *jsonschema.Schema) {
		between(0, schemas.MaxOutputLimit)(s)
		s.Default = json.RawMessage(strconv.FormatInt(schemas.DefaultOutputLimit, 10))
	}, "Exec.OutputLimit", "MessageRequest.OutputLimit")
	f.add(between(0, schemas.MaxTerminalSize), "Exec.Rows", "Exec.Cols")
	f.add(between(1, schemas.MaxTerminalSize), "TerminalSize.Rows", "TerminalSize.Cols")
	f.add(func(s *jsonschema.Schema) { s.Pattern = schemas.SignalPattern }, "SignalRequest.Signal")
	f.add(label(schemas.MaxPathBytes), "FileRequest.Path", "FileRequest.To", "FileRequest.Text")
	f.add(label(schemas.MaxFileNameBytes), "FileRequest.After", "FileRequest.Name")
	f.add(func(s *jsonschema.Schema) { s.Pattern = schemas.FileModePattern }, "FileRequest.Mode")
	f.add(between(0, -1), "FileRequest.Offset", "FileRequest.Limit")
	f.add(func(s *jsonschema.Schema) {
		most := schemas.MaxTags
		s.MaxProperties = &most
		s.PropertyNames = &jsonschema.Schema{}
		required(schemas.MaxTagBytes)(s.PropertyNames)
		label(schemas.MaxTagBytes)(s.AdditionalProperties)
	}, "PlaceRequest.Tags")
	f.add(func(s *jsonschema.Schema) {
		most := schemas.MaxLabels
		s.MaxProperties = &most
		s.PropertyNames = &jsonschema.Schema{Pattern: schemas.LabelNamePattern}
		label(schemas.MaxLabelBytes)(s.AdditionalProperties)
	}, "Origin.Labels")
	f.add(func(s *jsonschema.Schema) { s.Pattern = schemas.TraceParentPattern }, "Origin.TraceParent")
	f.add(func(s *jsonschema.Schema) {
		s.Pattern = schemas.TraceStatePattern
		length(0, schemas.MaxTraceState)(s)
	}, "Origin.TraceState")
}

// addWorker adds the rules of what workers send.
func (f fields) addWorker() {
	f.add(constant(schemas.EventSpecVersion), "Event.SpecVersion")
	f.add(constant(schemas.Version), "HookData.SpecVersion")
	f.add(id(0), "Result.Process")
	f.add(id(1), "Service.Thread", "Service.Name", "Service.Worker", "Service.Session", "Event.ID", "Event.Source", "Event.Process", "Event.Session", "Event.Template",
		"Result.Worker", "ProcessInfo.Process", "ProcessInfo.Thread", "ProcessInfo.Worker", "Session.ID", "Session.Tenant",
		"Session.Thread", "Session.Owner", "Session.Template", "SandboxInfo.ID", "PlaceReply.Worker", "Message.Thread", "Message.Session",
		"Message.Process", "Message.Template", "StreamFinish.Process", "Conversation.Tenant", "Conversation.Thread",
		"Conversation.Template", "Conversation.Session", "Conversation.From", "Session.From", "ColdStart.Sandbox")
	f.add(func(s *jsonschema.Schema) { s.Pattern = schemas.FingerprintPattern }, "CancelRequest.Fingerprint", "Accepted.Fingerprint", "Started.Fingerprint", "Result.Fingerprint")
	f.add(between(0, 255), "Result.ExitCode", "ProcessInfo.ExitCode", "StreamFinish.ExitCode")
	f.add(between(-1, -1), "LogGap.To")
	f.add(between(1, -1), "LogRange.Chunks", "HookRun.Attempt", "ProcessesCleaned.Through", "ProcessesCleaned.Count")
	f.add(between(0, -1), "CleanReply.Cleaned")
	f.add(between(0, -1), "Accepted.TimeoutMS", "Started.PID", "ProcessInfo.PID", "ProcessUsage.CPUMS", "ProcessUsage.MemoryBytes", "ProcessUsage.Processes", "Result.Signal", "Result.StdoutBytes", "Result.StderrBytes",
		"Result.DurationMS", "Result.UserMS", "Result.SystemMS", "Result.MaxRSSBytes", "Result.Killed", "SandboxInfo.StartMS",
		"LogGap.From", "Session.Messages", "Usage.InputTokens", "Usage.OutputTokens", "HookRun.DurationMS", "ColdStart.SandboxMS",
		"ColdStart.HooksMS", "FileReply.Files", "FileReply.Bytes",
		"FileTransfer.Files", "FileTransfer.Bytes", "FileTransfer.DurationMS", "SyncReport.Files", "SyncReport.Bytes", "SyncReport.Deleted", "SyncReport.DurationMS")
}

// addTemplate adds the rules of templates, for those who read templates from KV. Workers read YAML, and check it with
// Template.Validate alone.
func (f fields) addTemplate() {
	f.add(id(1), "Template.Name")
	f.add(image, "Template.Image")
	f.add(variables, "Template.Env")
	f.add(environment, "Template.Secrets")
	f.add(func(s *jsonschema.Schema) { s.PropertyNames = enum(schemas.Phases()) }, "Template.Hooks")
	f.add(values(schemas.TemplateProviders()), "Template.Provider")
	f.add(values(schemas.SyncLayouts()), "TemplateSync.Layout")
	f.add(values(schemas.WorkspaceModes()), "TemplateWorkspace.Mode")
	f.add(id(1), "TemplateWorkspace.Template")
	f.add(values(schemas.SyncConflicts()), "TemplateSync.OnConflict")
	f.add(values(schemas.AgentOutputs()), "TemplateAgent.Output")
	f.add(values(schemas.PolicyNames()), "TemplatePolicy.Name")
	f.add(values(schemas.BuiltinHooks()), "HookSpec.Builtin")
	f.add(between(0, -1), "TemplateLimits.MemoryBytes", "TemplateLimits.CPUs", "TemplateLimits.PIDs", "TemplateLimits.OpenFiles", "TemplateLimits.TmpBytes",
		"TemplateLimits.WorkspaceBytes", "TemplateLimits.WorkspaceFiles", "TemplateLimits.FileBytes")
	f.add(between(0, schemas.MaxTimeoutMS), "TemplateSession.IdleTimeoutMS", "TemplateSession.ParkAfterMS", "TemplateSession.MaxLifetimeMS",
		"TemplateSession.StartTimeoutMS", "TemplateSession.StopGraceMS", "TemplateAgent.TimeoutMS")
	f.add(between(0, schemas.MaxHookTimeoutMS), "HookSpec.TimeoutMS")
	f.add(func(s *jsonschema.Schema) {
		least := 1
		s.MinItems = &least
		text(s.Items)
	}, "TemplateAgent.Command", "HookSpec.Command")
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
