package schemas

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Limits on what a template holds. They are far over what anyone writes, and keep a template within one message.
const (
	maxDescriptionBytes = 1 << 10
	maxImageBytes       = 512
	maxPatternBytes     = 256
	maxHookNameBytes    = 256
	maxHooks            = 32   // of one phase
	maxEntries          = 256  // of env and of secrets
	maxPatterns         = 1024 // of allow and of deny
	maxWords            = 256  // of a command
	maxCPUs             = 4096
)

// Validate checks every field. The error is invalid_argument with the detail "path", such as hooks.cold_start[0].timeout_ms.
func (t *Template) Validate() error {
	if err := CheckID("name", t.Name); err != nil {
		return err
	}
	if err := checkLabel("description", t.Description, maxDescriptionBytes); err != nil {
		return err
	}
	for _, check := range []func() error{
		t.validateSandbox, t.Limits.validate, t.validateEnv, t.Session.validate, t.Sync.validate, t.validateHooks, t.Agent.validate,
		t.Policy.validate,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (t *Template) validateSandbox() error {
	if err := oneOf("provider", t.Provider, templateProviders()); err != nil {
		return err
	}
	if err := checkLabel("image", t.Image, maxImageBytes); err != nil {
		return err
	}
	switch {
	case strings.ContainsAny(t.Image, " \t\r\n"):
		return invalid("image", "%.40q is not an image's name", t.Image)
	case t.Image != "" && t.Provider != ProviderDocker && t.Provider != ProviderAuto && t.Provider != "":
		return invalid("image", "provider %s makes no use of one: leave it out, or say provider docker", t.Provider)
	case t.Rootfs != "" && t.Provider != ProviderJail && t.Provider != ProviderAuto && t.Provider != "":
		return invalid("rootfs", "provider %s makes no use of one: leave it out, or say provider jail", t.Provider)
	case t.Rootfs != "" && t.Image != "":
		return invalid("rootfs", "there is an image too: give one of the two")
	}
	if t.Rootfs != "" {
		if err := checkAbsolute("rootfs", t.Rootfs); err != nil {
			return err
		}
	}
	return oneOf("network", t.Network, Networks())
}

func (l *TemplateLimits) validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"memory_bytes", l.MemoryBytes}, {"pids", l.PIDs}, {"tmp_bytes", l.TmpBytes}, {"workspace_bytes", l.WorkspaceBytes},
		{"workspace_files", l.WorkspaceFiles},
	} {
		if f.value < 0 {
			return invalid("limits."+f.name, "%d is less than 0", f.value)
		}
	}
	if math.IsNaN(l.CPUs) || l.CPUs < 0 || l.CPUs > maxCPUs {
		return invalid("limits.cpus", "%v is not between 0 and %d", l.CPUs, maxCPUs)
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
			return invalid("secrets."+name, "env has it too: give it once")
		}
		ref := t.Secrets[name]
		if err := ref.validate("secrets." + name); err != nil {
			return err
		}
	}
	return nil
}

// SecretPrefix begins the name of each variable of a worker's environment that templates may refer to: a template must not
// be a way to read the rest of it.
const SecretPrefix = "SLUICE_SECRET_"

func (r *SecretRef) validate(at string) error {
	switch {
	case (r.Env == "") == (r.File == ""):
		return invalid(at, "set one of env and file")
	case r.File != "":
		return checkAbsolute(at+".file", r.File)
	case !strings.HasPrefix(r.Env, SecretPrefix) || r.Env == SecretPrefix:
		return invalid(at+".env", "%.60q does not begin with %s: only such variables of the worker can be had", r.Env, SecretPrefix)
	case strings.ContainsAny(r.Env, "=\x00"):
		return invalid(at+".env", "%q is not an environment name", brief(r.Env, 60))
	}
	return checkLabel(at+".env", r.Env, maxPatternBytes)
}

func (s *TemplateSession) validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"idle_timeout_ms", s.IdleTimeoutMS}, {"park_after_ms", s.ParkAfterMS}, {"max_lifetime_ms", s.MaxLifetimeMS},
		{"start_timeout_ms", s.StartTimeoutMS}, {"stop_grace_ms", s.StopGraceMS},
	} {
		if err := checkMillis("session."+f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}

func (t *Template) validateHooks() error {
	for _, phase := range slices.Sorted(maps.Keys(t.Hooks)) {
		at := "hooks." + string(phase)
		if err := oneOf(at, phase, Phases()); err != nil || phase == "" {
			return invalid(brief(at, maxShownPath), "no such phase: one of %v", Phases())
		}
		specs := t.Hooks[phase]
		if len(specs) > maxHooks {
			return invalid(at, "%d hooks, the limit is %d", len(specs), maxHooks)
		}
		for i := range specs {
			at := fmt.Sprintf("%s[%d]", at, i)
			if err := specs[i].validate(at); err != nil {
				return err
			}
			if t.Sync == nil && (specs[i].Builtin == HookPull || specs[i].Builtin == HookPush) {
				return invalid(at+".builtin", "%s needs to know where to: set sync.location", specs[i].Builtin)
			}
		}
	}
	return nil
}

func (h *HookSpec) validate(at string) error {
	kinds := 0
	for _, set := range []bool{h.Builtin != "", len(h.Command) > 0, h.Subject != "", h.URL != ""} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return invalid(at, "set one of builtin, command, subject and url")
	}
	if err := checkLabel(at+".name", h.Name, maxHookNameBytes); err != nil {
		return err
	}
	if err := oneOf(at+".builtin", h.Builtin, BuiltinHooks()); err != nil {
		return err
	}
	if len(h.Command) > 0 {
		if err := checkWords(at+".command", h.Command); err != nil {
			return err
		}
	}
	if h.Subject != "" && !validSubject(h.Subject) {
		return invalid(at+".subject", "%.60q is not a subject of yours: tokens between dots, no wildcard, not of sluice. or $", h.Subject)
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
	return checkMillis(at+".timeout_ms", h.TimeoutMS)
}

// validSubject says whether a hook may ask there. What is Sluice's own or the server's would let a template forge events.
func validSubject(s string) bool {
	if len(s) > maxPatternBytes || strings.HasPrefix(s, "$") || strings.HasPrefix(s, "_INBOX.") || strings.HasPrefix(s, "sluice.") {
		return false
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n\x00") {
			return false
		}
	}
	return checkText("", s) == nil
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
		case word == PromptWord && i == 0:
			return invalid("agent.command[0]", "the program cannot be the prompt")
		case word == PromptWord:
			argument = true
		case strings.Contains(word, PromptWord):
			// Put into the middle of a word, such as a shell line, a prompt could become code.
			return invalid(fmt.Sprintf("agent.command[%d]", i), "%s must be an argument by itself", PromptWord)
		}
	}
	if a.Stdin != nil && !*a.Stdin && !argument {
		return invalid("agent.stdin", "nothing would get the prompt: give the command an argument %s, or let stdin be true", PromptWord)
	}
	if err := checkMillis("agent.timeout_ms", a.TimeoutMS); err != nil {
		return err
	}
	return oneOf("agent.output", a.Output, AgentOutputs())
}

func (p *TemplatePolicy) validate() error {
	if p == nil {
		return nil
	}
	if err := oneOf("policy.name", p.Name, PolicyNames()); err != nil {
		return err
	}
	for _, list := range []struct {
		name     string
		patterns []string
	}{{"policy.allow", p.Allow}, {"policy.deny", p.Deny}} {
		if len(list.patterns) > maxPatterns {
			return invalid(list.name, "%d patterns, the limit is %d", len(list.patterns), maxPatterns)
		}
		for i, pattern := range list.patterns {
			at := fmt.Sprintf("%s[%d]", list.name, i)
			if pattern == "" {
				return invalid(at, "empty: name a program, or a pattern such as git-*")
			}
			if err := checkLabel(at, pattern, maxPatternBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneOf is nil for one of the values, and for none given.
func oneOf[T ~string](at string, v T, values []T) error {
	if v == "" || slices.Contains(values, v) {
		return nil
	}
	return invalid(at, "unknown %.40q: one of %v", string(v), values)
}

// checkLabel checks a text of at most so many bytes.
func checkLabel(at, s string, most int) error {
	if len(s) > most {
		return invalid(at, "%d bytes, the limit is %d", len(s), most)
	}
	return checkText(at, s)
}

// checkWords checks a program with its arguments.
func checkWords(at string, words []string) error {
	switch {
	case len(words) == 0 || words[0] == "":
		return invalid(at, "missing: name the program to run")
	case len(words) > maxWords:
		return invalid(at, "%d words, the limit is %d", len(words), maxWords)
	}
	for i, word := range words {
		if err := checkLabel(fmt.Sprintf("%s[%d]", at, i), word, MaxPathBytes); err != nil {
			return err
		}
	}
	return nil
}

func checkAbsolute(at, file string) error {
	if err := checkPath(at, file); err != nil {
		return err
	}
	if !path.IsAbs(file) || path.Clean(file) != file {
		return invalid(at, "%.60q is not an absolute path without . and ..", file)
	}
	return nil
}

// checkURL takes http and https without a password: templates can be read by whoever can list them.
func checkURL(at, s string) error {
	if err := checkPath(at, s); err != nil {
		return err
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return invalid(at, "not a URL that begins with http:// or https://")
	case u.User != nil:
		return invalid(at, "a URL must not hold a user or password")
	}
	return nil
}
