package policy

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxDepth is the deepest nesting of commands in commands.
const maxDepth = 24

// scope is the context in which a command runs.
type scope struct {
	depth int
	// shell is true when a shell runs the command, which may then be a builtin. functions are the functions that are certainly
	// defined.
	shell     bool
	functions []string
	// lang is the shell's syntax; 0 when unknown.
	lang syntax.LangVariant
}

// nested returns the scope of a command inside the command, run by the same shell.
func (s scope) nested() scope {
	s.depth++
	return s
}

// program returns the scope of a command that another program runs: without builtins and functions.
func (s scope) program() scope { return scope{depth: s.depth + 1} }

// checker checks one command and all commands inside it.
type checker struct {
	lists *lists
	bytes int // bytes of shell lines parsed so far, counted once per syntax
	lines int // shell lines parsed so far, counted likewise
}

// command checks a command and the commands that it runs.
func (c *checker) command(words []word, s scope) *denial {
	if len(words) == 0 {
		return nil
	}
	if s.depth > maxDepth {
		return deny(words[0].text, "more than %d commands are nested", maxDepth)
	}
	if !words[0].known {
		return deny(words[0].text, "the shell computes its name: write it literally")
	}
	given := words[0].text
	if given == "" {
		return deny(given, "the name is empty")
	}
	if p := c.lists.denies(given); p != "" {
		return &denial{command: given, pattern: p, why: "pattern " + p + " in deny matches it"}
	}
	name := path.Base(path.Clean(given))
	switch {
	case s.shell && given == name && slices.Contains(s.functions, given):
		return nil // its body is checked at its definition
	case s.shell && given == name && isBuiltin(name):
		return c.builtin(name, words, s)
	case isShell(name):
		return c.shell(name, given, words[1:], s)
	case opaque(name):
		if c.lists.names(given) {
			return nil
		}
		return deny(given, "cannot determine statically what it runs: to permit everything, name it in allow")
	}
	w, wraps := wrappers()[name]
	wraps = wraps && (!w.builtin || s.shell)
	if !(wraps && w.builtin) && !c.lists.allows(given) {
		return deny(given, "no pattern in allow matches it")
	}
	switch {
	case wraps:
		return c.wrapped(given, &w, words[1:], s)
	case name == "find":
		return c.find(given, words[1:], s)
	}
	return nil
}

// wrapped checks the command in the arguments of another one.
func (c *checker) wrapped(given string, w *wrapper, words []word, s scope) *denial {
	inner, options, assigned, d := w.inner(given, words)
	if d != nil {
		return d
	}
	for _, a := range assigned {
		if d := checkAssignment(a); d != nil {
			return d
		}
	}
	_, prints := options["v"]
	_, describes := options["V"]
	if len(inner) == 0 || given == "command" && (prints || describes) {
		return nil // runs nothing
	}
	if w.addsArgs {
		inner = withXargsInput(inner, options)
	}
	if w.builtin {
		s.functions = nil // it ignores functions
		return c.command(inner, s.nested())
	}
	return c.command(inner, s.program())
}

// withXargsInput returns the command that xargs runs. Its input replaces a placeholder in the words, or adds words.
func withXargsInput(inner []word, options map[string]string) []word {
	placeholder := ""
	for _, name := range []string{"I", "i", "replace"} {
		if value, given := options[name]; given {
			placeholder = value
			if placeholder == "" {
				placeholder = "{}"
			}
		}
	}
	if placeholder == "" {
		return append(slices.Clone(inner), unknownWords("input of xargs"))
	}
	return withPlaceholder(inner, placeholder)
}

// withPlaceholder returns a command in which words that contain the placeholder are unknown.
func withPlaceholder(words []word, placeholder string) []word {
	out := slices.Clone(words)
	for i := range out {
		if strings.Contains(out[i].text, placeholder) {
			out[i].known = false
		}
	}
	return out
}

// find checks the commands that find runs, and -delete, which does the same as rm.
func (c *checker) find(given string, words []word, s scope) *denial {
	for i := 0; i < len(words); i++ {
		switch {
		case words[i].many:
			return deny(given, "cannot determine statically whether it runs a command: the value of %s is unknown", clip(words[i].text))
		case !words[i].known:
			// If it is -exec, a command follows.
			if i+1 < len(words) && words[i+1].known && c.lists.denies(words[i+1].text) != "" {
				return c.command(words[i+1:], s.program())
			}
			continue
		}
		switch words[i].text {
		case "-delete":
			if p := c.lists.denies("rm"); p != "" {
				return &denial{command: given + " -delete", pattern: p, why: "it removes files, and pattern " + p + " in deny matches rm"}
			}
		case "-exec", "-execdir", "-ok", "-okdir":
			end := i + 1
			for end < len(words) && words[end].text != ";" && words[end].text != "+" {
				end++
			}
			if d := c.command(withPlaceholder(words[i+1:end], "{}"), s.program()); d != nil {
				return d
			}
			i = end
		}
	}
	return nil
}

func isShell(name string) bool {
	switch name {
	case "sh", "bash", "dash", "ash", "rbash":
		return true
	}
	return false
}

// shell checks a shell. With -c, the line is checked, and allow need not name the shell.
func (c *checker) shell(name, given string, words []word, s scope) *denial {
	line, found, d := shellLine(given, words)
	switch {
	case d != nil:
		return d
	case found:
		return c.line(name, line, s.program())
	case c.lists.names(given):
		return nil
	default:
		return deny(given, "cannot determine statically what it runs: use -c, or, to permit everything, name it in allow")
	}
}

// shellLine returns the line of a shell's option -c.
func shellLine(given string, words []word) (line string, found bool, d *denial) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		if !w.known {
			return "", false, deny(given, unknownValue, clip(w.text))
		}
		switch {
		case w.text == "--" || w.text == "-":
			if found && i+1 < len(words) {
				return literalLine(given, words[i+1])
			}
			return "", false, nil
		case slices.Contains([]string{"--norc", "--noprofile", "--posix", "--login", "--restricted", "--verbose"}, w.text):
		case strings.HasPrefix(w.text, "--"):
			return "", false, deny(given, unknownOption, clip(w.text))
		case len(w.text) > 1 && (w.text[0] == '-' || w.text[0] == '+'):
			if strings.ContainsAny(w.text, "si") {
				return "", false, deny(given, "with %s it reads commands from standard input", clip(w.text))
			}
			found = found || w.text[0] == '-' && strings.Contains(w.text, "c")
			i += strings.Count(w.text, "o") + strings.Count(w.text, "O") // each takes one word
		case found:
			return literalLine(given, w)
		default:
			return "", false, nil // a script
		}
	}
	return "", false, nil
}

func literalLine(given string, w word) (string, bool, *denial) {
	if !w.known {
		return "", false, deny(given, dynamicLine, clip(w.text))
	}
	return w.text, true, nil
}
