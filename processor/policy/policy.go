package policy

import (
	"fmt"
	"path"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// Policy checks commands against the allow and deny lists of their session's template.
type Policy struct{}

// New returns a Policy. It has no state: templates hold the lists.
func New() *Policy { return &Policy{} }

// Check returns nil if a template allows a command. A template without a policy allows all commands. Errors: policy_denied, with
// the details "command", the refused name, and "pattern", the pattern in deny that matches it; empty if there is none.
func (*Policy) Check(t *schemas.Template, command string, args []string) error {
	l := listsOf(t.Policy)
	if l == nil {
		return nil
	}
	words := make([]word, 0, 1+len(args))
	words = append(words, literal(command))
	for _, a := range args {
		words = append(words, literal(a))
	}
	c := checker{lists: l}
	if d := c.command(words, scope{}); d != nil {
		return schemas.Errorf(schemas.CodePolicyDenied, "the policy of template %s refuses %s: %s", t.Name, clip(d.command), d.why).
			With("command", clip(d.command)).With("pattern", d.pattern)
	}
	return nil
}

// Reasons of denials. The argument is the word that is at fault.
const (
	dynamicLine   = "the shell computes its line: write %s literally"
	unknownValue  = "cannot determine statically what it runs: the value of %s is unknown"
	unknownOption = "cannot determine statically what it runs: its option %s is unknown"
)

// denial is why a command is refused.
type denial struct{ command, pattern, why string }

func deny(command, format string, args ...any) *denial {
	return &denial{command: command, why: fmt.Sprintf(format, args...)}
}

// maxShown is the number of bytes of a command that an error repeats.
const maxShown = 200

func clip(command string) string {
	if len(command) > maxShown {
		command = command[:maxShown] + "…"
	}
	return strings.ToValidUTF8(command, "\uFFFD")
}

// lists are the patterns of allowed and denied programs.
type lists struct{ allow, deny []string }

// documents returns the built-in policy for work on documents.
func documents() lists {
	return lists{
		allow: []string{
			"jq", "awk", "grep", "sed", "sort", "uniq", "head", "tail", "wc", "cut", "tr", "cat", "echo", "date", "find", "ls", "python3", "python",
		},
		deny: []string{"rm", "mv", "dd", "curl", "wget", "ssh", "sudo"},
	}
}

// listsOf returns the lists of a policy; nil if it allows everything.
func listsOf(p *schemas.TemplatePolicy) *lists {
	if p == nil {
		return nil
	}
	var l lists
	if p.Name == schemas.PolicyDocuments {
		l = documents()
	}
	l.allow, l.deny = append(l.allow, p.Allow...), append(l.deny, p.Deny...)
	if len(l.allow) == 0 && len(l.deny) == 0 {
		return nil
	}
	return &l
}

// denies returns the pattern that denies a program by its name or its given path; empty for none.
func (l *lists) denies(program string) string {
	base := path.Base(path.Clean(program))
	for _, p := range l.deny {
		if Matches(p, base) || Matches(p, program) || Matches(p, path.Clean(program)) {
			return p
		}
	}
	return ""
}

// allows reports whether a program that is not denied may run. A path matches the pattern of its name only in the system's
// folders, since a script in the workspace may have any name.
func (l *lists) allows(program string) bool { return len(l.allow) == 0 || l.names(program) }

// names reports whether a pattern in allow matches the program.
func (l *lists) names(program string) bool {
	clean := path.Clean(program)
	known := !strings.Contains(program, "/")
	for _, dir := range []string{"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"} {
		known = known || path.Dir(clean) == dir
	}
	for _, p := range l.allow {
		switch {
		case strings.Contains(p, "/"):
			if Matches(p, clean) {
				return true
			}
		case known && Matches(p, path.Base(clean)):
			return true
		}
	}
	return false
}

// Matches reports whether a name matches a pattern, in which * matches any characters.
func Matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	rest, ok := strings.CutPrefix(name, first)
	if !ok || !strings.HasSuffix(rest, last) {
		return false
	}
	rest = strings.TrimSuffix(rest, last)
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}
