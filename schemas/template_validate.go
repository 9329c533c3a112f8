package schemas

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Validate checks every field. The error is invalid_argument with the detail "path", such as hooks.cold_start[0].timeout_ms.
func (t *Template) Validate() error {
	return first(
		CheckID("name", t.Name), checkLabel("description", t.Description, maxDescriptionBytes), t.validateSandbox(), t.Limits.validate(),
		t.validateEnv(), t.Session.validate(), t.Sync.validate(), t.validateWorkspace(), t.validateHooks(),
		t.Agent.validate(), t.Policy.validate(),
	)
}

func (t *Template) validateSandbox() error {
	auto := t.Provider == "" || t.Provider == ProviderAuto
	if err := first(oneOf("provider", t.Provider, TemplateProviders()), checkImage(t.Image)); err != nil {
		return err
	}
	switch {
	case t.Image != "" && !auto && t.Provider != ProviderDocker:
		return invalid("image", "provider %s does not use images: remove it, or use provider docker", t.Provider)
	case t.Rootfs != "" && !auto && t.Provider != ProviderJail:
		return invalid("rootfs", "provider %s does not use a rootfs: remove it, or use provider jail", t.Provider)
	case t.Rootfs != "" && t.Image != "":
		return invalid("rootfs", "image is set too: set only one of them")
	case t.Rootfs != "":
		if err := checkAbsolute("rootfs", t.Rootfs); err != nil {
			return err
		}
	}
	return oneOf("network", t.Network, Networks())
}

func (l *TemplateLimits) validate() error {
	for _, f := range []struct {
		name         string
		value, least int64
	}{
		{"memory_bytes", l.MemoryBytes, MinMemoryBytes}, {"pids", l.PIDs, MinPIDs}, {"open_files", l.OpenFiles, MinOpenFiles}, {"tmp_bytes", l.TmpBytes, MinTmpBytes},
		{"workspace_bytes", l.WorkspaceBytes, 0}, {"workspace_files", l.WorkspaceFiles, 0}, {"file_bytes", l.FileBytes, 0},
	} {
		switch {
		case f.value < 0:
			return invalid("limits."+f.name, "%d is less than 0", f.value)
		case f.value > 0 && f.value < f.least:
			return invalid("limits."+f.name, "%d is too small to run anything; the minimum is %d", f.value, f.least)
		}
	}
	if l.PIDs > MaxPIDs {
		return invalid("limits.pids", "%d is more than %d", l.PIDs, MaxPIDs)
	}
	if l.CPUs > 0 && l.CPUs < MinCPUs {
		return invalid("limits.cpus", "%v is too small to run anything; the minimum is %g", l.CPUs, MinCPUs)
	}
	if !ValidCPUs(l.CPUs) {
		return invalid("limits.cpus", "%v is not between 0 and %d", l.CPUs, MaxCPUs)
	}
	return nil
}

func (t *Template) validateEnv() error {
	if len(t.Env) > maxEntries {
		return invalid("env", "%d variables, the limit is %d", len(t.Env), maxEntries)
	}
	if len(t.Secrets) > maxEntries {
		return invalid("secrets", "%d variables, the limit is %d", len(t.Secrets), maxEntries)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		if err := checkEnv("env", name, t.Env[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Secrets)) {
		if err := checkEnv("secrets", name, ""); err != nil {
			return err
		}
		if _, twice := t.Env[name]; twice {
			return invalid("secrets."+name, "env has the same variable: remove one")
		}
		ref := t.Secrets[name]
		if err := ref.validate("secrets." + name); err != nil {
			return err
		}
	}
	return nil
}

func (r *SecretRef) validate(at string) error {
	switch {
	case (r.Env == "") == (r.File == ""):
		return invalid(at, "set exactly one of env and file")
	case r.File != "":
		return checkAbsolute(at+".file", r.File)
	case !strings.HasPrefix(r.Env, SecretPrefix) || r.Env == SecretPrefix:
		return invalid(at+".env", "%.60q does not begin with %s: templates can use only such variables of the worker", r.Env, SecretPrefix)
	case strings.ContainsAny(r.Env, "=\x00"):
		return invalid(at+".env", "%q is not an environment name", brief(r.Env, 60))
	}
	return checkLabel(at+".env", r.Env, maxPatternBytes)
}

func (s *TemplateSession) validate() error {
	return first(
		checkMillis("session.idle_timeout_ms", s.IdleTimeoutMS), checkMillis("session.park_after_ms", s.ParkAfterMS),
		checkMillis("session.max_lifetime_ms", s.MaxLifetimeMS), checkMillis("session.start_timeout_ms", s.StartTimeoutMS),
		checkMillis("session.stop_grace_ms", s.StopGraceMS),
	)
}

// The placeholders of a sync location.
const (
	placeholderTenant   = "{tenant}"
	placeholderTemplate = "{agent}"
	placeholderThread   = "{thread}"
)

const fileScheme, s3Scheme = "file://", "s3://"

// ThreadLocation returns the location of one thread's workspace. No two threads of a template have the same location, and none
// is inside another's. Errors: invalid_argument for a name that is not an id, for a location that is not valid, and for a tenant
// other than [DefaultTenant] when the location has no {tenant}.
func (s *TemplateSync) ThreadLocation(tenant, template, thread string) (string, error) {
	if err := first(s.validateLocation(), CheckID("tenant", tenant), CheckID("template", template), CheckID("thread", thread)); err != nil {
		return "", err
	}
	if tenant != DefaultTenant && !strings.Contains(s.Location, placeholderTenant) {
		return "", invalid("sync.location", "tenant %s would share workspaces with other tenants: add %s", tenant, placeholderTenant)
	}
	return strings.NewReplacer(placeholderTenant, tenant, placeholderTemplate, template, placeholderThread, thread).Replace(s.Location), nil
}

func (s *TemplateSync) validate() error {
	if s == nil {
		return nil
	}
	if err := s.validateLocation(); err != nil {
		return err
	}
	if s.Endpoint != "" {
		if err := checkURL("sync.endpoint", s.Endpoint); err != nil {
			return err
		}
		if strings.HasPrefix(s.Location, fileScheme) {
			return invalid("sync.endpoint", "file locations do not use an endpoint: remove it")
		}
	}
	return first(oneOf("sync.layout", s.Layout, SyncLayouts()), oneOf("sync.on_conflict", s.OnConflict, SyncConflicts()))
}

func (s *TemplateSync) validateLocation() error {
	const at = "sync.location"
	if s.Location == "" {
		return invalid(at, "missing: use s3://bucket/prefix/%s or file:///folder/%s", placeholderThread, placeholderThread)
	}
	if err := checkPath(at, s.Location); err != nil {
		return err
	}
	folder, isFile := strings.CutPrefix(s.Location, fileScheme)
	rest, isS3 := strings.CutPrefix(s.Location, s3Scheme)
	bucket, prefix, _ := strings.Cut(rest, "/")
	switch {
	case isFile && strings.HasPrefix(folder, "/") && folder != "/":
		prefix = folder[1:]
	case isS3 && bucket != "" && !strings.ContainsAny(bucket, "{}"):
	default:
		return invalid(at, "%.60q is neither s3://bucket/prefix nor file:///folder", s.Location)
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if path.Clean("/"+prefix) != "/"+prefix {
		return invalid(at, "it contains an empty segment, . or ..")
	}
	return checkSegments(at, strings.Split(prefix, "/"))
}

// checkSegments makes sure that different threads get different locations. With {tenant}-{thread}, tenant a and thread b-c
// would share one with tenant a-b and thread c.
func checkSegments(at string, segments []string) error {
	placeholders := []string{placeholderTenant, placeholderTemplate, placeholderThread}
	hasThread := false
	for _, segment := range segments {
		count := 0
		for _, p := range placeholders {
			n := strings.Count(segment, p)
			count += n
			hasThread = hasThread || n > 0 && p == placeholderThread
			segment = strings.ReplaceAll(segment, p, "")
		}
		if count > 1 {
			return invalid(at, "two of %v in one segment: put a slash between them", placeholders)
		}
		if strings.ContainsAny(segment, "{}") {
			return invalid(at, "unknown placeholder: use %v", placeholders)
		}
	}
	if !hasThread {
		return invalid(at, "no %s in it: all threads would share one workspace", placeholderThread)
	}
	return nil
}

// The parts of [TemplateWorkspace].From.
const fromThread, labelOpen, labelClose = "thread/", "{label.", "}"

func (t *Template) validateWorkspace() error {
	w := t.Workspace
	if w == nil {
		return nil
	}
	source, ok := strings.CutPrefix(w.From, fromThread)
	if name, isLabel := labelOf(source); !ok || isLabel && !labelName.MatchString(name) || !isLabel && !ValidID(source) {
		return invalid("workspace.from", "%.80q is neither thread/ID nor thread/{label.NAME}", w.From)
	}
	if err := first(checkOptionalID("workspace.template", w.Template), oneOf("workspace.mode", w.Mode, WorkspaceModes())); err != nil {
		return err
	}
	switch {
	case w.Template == "" && t.Sync == nil:
		return invalid("workspace.template", "missing: name the template of that thread, whose sync says where its workspace is stored")
	case w.ReadOnly() && t.Sync != nil:
		return invalid("workspace.mode", "a read-only workspace is not stored: remove sync, or use mode copy")
	case w.ReadOnly() && t.Provider == ProviderLocal:
		return invalid("workspace.mode", "provider local cannot make a workspace read-only: use another provider, or mode copy")
	}
	return nil
}

// labelOf returns the name of the label that a source is taken from.
func labelOf(source string) (name string, ok bool) {
	if name, ok = strings.CutPrefix(source, labelOpen); ok {
		name, ok = strings.CutSuffix(name, labelClose)
	}
	return name, ok
}

// Source returns the thread whose last version a new workspace begins with, for a command with these labels; empty for none, also of a
// nil TemplateWorkspace. Errors: invalid_argument when the label is missing or names no thread.
func (w *TemplateWorkspace) Source(labels map[string]string) (thread string, err error) {
	if w == nil {
		return "", nil
	}
	source := strings.TrimPrefix(w.From, fromThread)
	name, ok := labelOf(source)
	if !ok {
		return source, nil
	}
	thread, ok = labels[name]
	switch {
	case !ok:
		return "", invalid("labels", "label %s is missing: it names the thread whose workspace the template begins with", name)
	case !ValidID(thread):
		return "", invalid("labels."+name, "%.60q is not the id of a thread", thread)
	}
	return thread, nil
}

func (t *Template) validateHooks() error {
	for _, phase := range slices.Sorted(maps.Keys(t.Hooks)) {
		at := "hooks." + string(phase)
		if !slices.Contains(Phases(), phase) {
			return invalid(at, "no such phase: one of %v", Phases())
		}
		specs := t.Hooks[phase]
		if len(specs) > maxHooks {
			return invalid(at, "%d hooks, the limit is %d", len(specs), maxHooks)
		}
		for i := range specs {
			at, h := fmt.Sprintf("%s[%d]", at, i), &specs[i]
			if err := first(h.Validate(at), oneOf(at+".builtin", h.Builtin, BuiltinHooks())); err != nil {
				return err
			}
			if t.Sync == nil && (h.Builtin == HookPull && t.Workspace == nil || h.Builtin == HookPush) {
				return invalid(at+".builtin", "%s needs a place for workspaces: set sync.location", h.Builtin)
			}
		}
	}
	return nil
}

// Validate checks every field of a hook at this path of a template, except whether Builtin exists. The error is invalid_argument
// with the detail "path".
func (h *HookSpec) Validate(at string) error {
	kinds := 0
	for _, set := range []bool{h.Builtin != "", len(h.Command) > 0, h.Subject != "", h.Publish != "", h.URL != ""} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return invalid(at, "set exactly one of builtin, command, subject, publish and url")
	}
	if err := checkLabel(at+".name", h.Name, maxHookNameBytes); err != nil {
		return err
	}
	if len(h.Command) > 0 {
		if err := checkWords(at+".command", h.Command); err != nil {
			return err
		}
	}
	for field, subject := range map[string]string{".subject": h.Subject, ".publish": h.Publish} {
		if subject != "" && !validSubject(subject) {
			return invalid(at+field, "%.60q is not usable: name a subject without wildcards that does not begin with $, _ or sluice.", subject)
		}
	}
	if h.URL != "" {
		if err := checkURL(at+".url", h.URL); err != nil {
			return err
		}
	}
	if h.Secret != nil {
		if h.URL == "" {
			return invalid(at+".secret", "only a hook with a url is signed")
		}
		if err := h.Secret.validate(at + ".secret"); err != nil {
			return err
		}
	}
	if h.TimeoutMS < 0 || h.TimeoutMS > MaxHookTimeoutMS {
		return invalid(at+".timeout_ms", "%d is not between 0 and %d milliseconds", h.TimeoutMS, MaxHookTimeoutMS)
	}
	return nil
}

// validSubject reports whether a hook may send to the subject. A worker has more rights on the NATS server than a
// template's author: subjects of Sluice and of the server would let a template forge events.
func validSubject(s string) bool {
	if len(s) > maxPatternBytes || strings.HasPrefix(s, "$") || strings.HasPrefix(s, "_") || strings.HasPrefix(s, "sluice.") {
		return false
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsAny(token, "*>") {
			return false
		}
	}
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

func (a *TemplateAgent) validate() error {
	if a == nil {
		return nil
	}
	if err := checkWords("agent.command", a.Command); err != nil {
		return err
	}
	argument := false
	for i, word := range a.Command {
		switch {
		case word == PromptPlaceholder && i == 0:
			return invalid("agent.command[0]", "the program cannot be the prompt")
		case word == PromptPlaceholder:
			argument = true
		case strings.Contains(word, PromptPlaceholder):
			// Inside a longer word, such as a shell line, a prompt could become code.
			return invalid(fmt.Sprintf("agent.command[%d]", i), "%s must be an argument by itself", PromptPlaceholder)
		}
	}
	if a.Stdin != nil && !*a.Stdin && !argument {
		return invalid("agent.stdin", "the program would get no prompt: add the argument %s, or set stdin to true", PromptPlaceholder)
	}
	return first(checkMillis("agent.timeout_ms", a.TimeoutMS), oneOf("agent.output", a.Output, AgentOutputs()))
}

func (p *TemplatePolicy) validate() error {
	if p == nil {
		return nil
	}
	return first(
		oneOf("policy.name", p.Name, PolicyNames()), checkPatterns("policy.allow", p.Allow), checkPatterns("policy.deny", p.Deny),
	)
}

func checkPatterns(at string, patterns []string) error {
	if len(patterns) > maxPatterns {
		return invalid(at, "%d patterns, the limit is %d", len(patterns), maxPatterns)
	}
	for i, pattern := range patterns {
		at := fmt.Sprintf("%s[%d]", at, i)
		if pattern == "" {
			return invalid(at, "empty: name a program, or a pattern such as git-*")
		}
		if err := checkLabel(at, pattern, maxPatternBytes); err != nil {
			return err
		}
	}
	return nil
}

// ValidCPUs reports whether a sandbox can have this limit of CPUs: 0 to MaxCPUs.
func ValidCPUs(n float64) bool { return n >= 0 && n <= MaxCPUs } // NaN is not
