package policy

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxDepth is how many commands within commands are looked into.
const maxDepth = 24

// place is where a command stands.
type place struct {
	depth int
	// shell says that a shell runs it, whose builtins it may be; functions are those that are sure to be there.
	shell     bool
	functions []string
	// lang is how the shell reads a line, where that is known.
	lang syntax.LangVariant
}

func (p place) within() place {
	p.depth++
	return p
}

// program is the place of what another program runs: no builtin, no function.
func (p place) program() place { return place{depth: p.depth + 1} }

// checker checks one command, and all that is in it.
type checker struct {
	lists *lists
	read  int // bytes of shell lines read so far, each once for each way to read it
	lines int
}

// command checks a command and what it runs in turn.
func (c *checker) command(words []word, at place) *denial {
	if len(words) == 0 {
		return nil
	}
	if at.depth > maxDepth {
		return deny(words[0].text, "it stands deeper than %d commands within each other", maxDepth)
	}
	if !words[0].known {
		return deny(words[0].text, "its name is put together only when it runs: write it out")
	}
	given := words[0].text
	if given == "" {
		return deny(given, "it has no name")
	}
	if p := c.lists.denies(given); p != "" {
		return &denial{command: given, pattern: p, why: "deny has the pattern " + p}
	}
	name := path.Base(path.Clean(given))
	switch {
	case at.shell && given == name && slices.Contains(at.functions, given):
		return nil // its body is checked where it stands
	case at.shell && given == name && isBuiltin(name):
		return c.builtin(name, words, at)
	case isShell(name):
		return c.shell(name, given, words[1:], at)
	case opaque(name):
		if c.lists.names(given) {
			return nil
		}
		return deny(given, "what it runs cannot be seen: name it in allow, if all of that may run")
	}
	w, wraps := wrappers()[name]
	wraps = wraps && (!w.builtin || at.shell)
	if !(wraps && w.builtin) && !c.lists.allows(given) {
		return deny(given, "no pattern of allow matches it")
	}
	switch {
	case wraps:
		return c.wrapped(given, &w, words[1:], at)
	case name == "find":
		return c.find(given, words[1:], at)
	}
	return nil
}

// wrapped checks the command that another one's arguments hold.
func (c *checker) wrapped(given string, w *wrapper, words []word, at place) *denial {
	inner, options, assigned, d := w.inner(given, words)
	if d != nil {
		return d
	}
	for _, a := range assigned {
		if d := checkAssigned(a); d != nil {
			return d
		}
	}
	_, tells := options["v"]
	_, describes := options["V"]
	if len(inner) == 0 || given == "command" && (tells || describes) {
		return nil // nothing is run
	}
	if w.adds {
		inner = replaced(inner, options)
	}
	if w.builtin {
		at.functions = nil // it looks past them
		return c.command(inner, at.within())
	}
	return c.command(inner, at.program())
}

// replaced is what xargs makes of its command: words that hold the replaced text are not known, and more are added.
func replaced(inner []word, options map[string]string) []word {
	mark := ""
	for _, name := range []string{"I", "i", "replace"} {
		if value, given := options[name]; given {
			mark = value
			if mark == "" {
				mark = "{}"
			}
		}
	}
	if mark == "" {
		return append(slices.Clone(inner), unknown("what xargs reads"))
	}
	return marked(inner, mark)
}

// marked is a command in which each word with the mark in it is known only when it runs.
func marked(words []word, mark string) []word {
	out := slices.Clone(words)
	for i := range out {
		if strings.Contains(out[i].text, mark) {
			out[i].known = false
		}
	}
	return out
}

// find checks what find is asked to run, and -delete, which is rm by another name.
func (c *checker) find(given string, words []word, at place) *denial {
	for i := 0; i < len(words); i++ {
		switch {
		case words[i].many:
			return deny(given, "whether it runs anything cannot be told: %s is not known yet", shown(words[i].text))
		case !words[i].known:
			// It might be -exec: then what follows is a command.
			if i+1 < len(words) && words[i+1].known && c.lists.denies(words[i+1].text) != "" {
				return c.command(words[i+1:], at.program())
			}
			continue
		}
		switch words[i].text {
		case "-delete":
			if p := c.lists.denies("rm"); p != "" {
				return &denial{command: given + " -delete", pattern: p, why: "it removes files, and deny has the pattern " + p}
			}
		case "-exec", "-execdir", "-ok", "-okdir":
			end := i + 1
			for end < len(words) && words[end].text != ";" && words[end].text != "+" {
				end++
			}
			if d := c.command(marked(words[i+1:end], "{}"), at.program()); d != nil {
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

// shell checks a shell. With -c the line counts, and the shell's own name need not be allowed.
func (c *checker) shell(name, given string, words []word, at place) *denial {
	line, found, d := shellLine(given, words)
	switch {
	case d != nil:
		return d
	case found:
		return c.line(name, line, at.program())
	case c.lists.names(given):
		return nil
	default:
		return deny(given, "what it runs cannot be seen: use it with -c, or name it in allow, if anything may run")
	}
}

// shellLine is the line of a shell's option -c.
func shellLine(given string, words []word) (line string, found bool, d *denial) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		if !w.known {
			return "", false, deny(given, "what it runs cannot be told before it does: %s is not known yet", shown(w.text))
		}
		switch {
		case w.text == "--" || w.text == "-":
			if found && i+1 < len(words) {
				return known(given, words[i+1])
			}
			return "", false, nil
		case slices.Contains([]string{"--norc", "--noprofile", "--posix", "--login", "--restricted", "--verbose"}, w.text):
		case strings.HasPrefix(w.text, "--"):
			return "", false, deny(given, "its option %s is not known here, so that what it runs cannot be told", shown(w.text))
		case len(w.text) > 1 && (w.text[0] == '-' || w.text[0] == '+'):
			if strings.ContainsAny(w.text, "si") {
				return "", false, deny(given, "with %s it reads more than its line", shown(w.text))
			}
			found = found || w.text[0] == '-' && strings.Contains(w.text, "c")
			i += strings.Count(w.text, "o") + strings.Count(w.text, "O") // each takes a word
		case found:
			return known(given, w)
		default:
			return "", false, nil // a script
		}
	}
	return "", false, nil
}

func known(given string, w word) (string, bool, *denial) {
	if !w.known {
		return "", false, deny(given, "its line is put together only when it runs: %s", shown(w.text))
	}
	return w.text, true, nil
}
