package policy

import (
	"fmt"
	"path"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// Policy checks commands by the lists of their session's template.
type Policy struct{}

// New is a policy. It holds no state: templates hold the lists.
func New() *Policy { return &Policy{} }

// Check says whether a template lets a command run. A template without a policy allows everything. Errors: policy_denied,
// with the details "command", the name that is refused, and "pattern", what refuses it; empty where nothing allows it.
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
	if d := c.command(words, place{}); d != nil {
		return schemas.Errorf(schemas.CodePolicyDenied, "the policy of template %s refuses %s: %s", t.Name, shown(d.command), d.why).
			With("command", shown(d.command)).With("pattern", d.pattern)
	}
	return nil
}

// denial says why a command is refused.
type denial struct{ command, pattern, why string }

func deny(command, format string, args ...any) *denial {
	return &denial{command: command, why: fmt.Sprintf(format, args...)}
}

// maxShown is how much of a command an error repeats, in bytes.
const maxShown = 200

func shown(command string) string {
	if len(command) > maxShown {
		command = command[:maxShown] + "…"
	}
	return strings.ToValidUTF8(command, "\uFFFD")
}

// lists are what may be run and what may not.
type lists struct{ allow, deny []string }

// documents is the policy for work on documents.
func documents() lists {
	return lists{
		allow: []string{
			"jq", "awk", "grep", "sed", "sort", "uniq", "head", "tail", "wc", "cut", "tr", "cat", "echo", "date", "find", "ls", "python3", "python",
		},
		deny: []string{"rm", "mv", "dd", "curl", "wget", "ssh", "sudo"},
	}
}

// listsOf is nil where everything is allowed.
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

// denies is the pattern that denies a program, by its name or by the path that was given; empty for none.
func (l *lists) denies(program string) string {
	base := path.Base(path.Clean(program))
	for _, p := range l.deny {
		if matches(p, base) || matches(p, program) || matches(p, path.Clean(program)) {
			return p
		}
	}
	return ""
}

// allows says whether a program may run, unless it is denied. A path that was given is taken for the program of its name only in
// the folders that hold the system's: anyone can call a script in the workspace ls.
func (l *lists) allows(program string) bool { return len(l.allow) == 0 || l.names(program) }

// names says whether an allow pattern is about this program.
func (l *lists) names(program string) bool {
	clean := path.Clean(program)
	known := !strings.Contains(program, "/")
	for _, dir := range []string{"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"} {
		known = known || path.Dir(clean) == dir
	}
	for _, p := range l.allow {
		switch {
		case strings.Contains(p, "/"):
			if matches(p, clean) {
				return true
			}
		case known && matches(p, path.Base(clean)):
			return true
		}
	}
	return false
}

// matches compares a name with a pattern, in which * stands for any characters.
func matches(pattern, name string) bool {
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
