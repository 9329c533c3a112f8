package policy

import (
	"slices"
	"strings"
)

// isBuiltin reports whether a shell runs the command itself. A builtin needs no allow pattern, only the commands that it runs do.
func isBuiltin(name string) bool {
	switch name {
	case ":", "true", "false", "test", "[", "[[", "cd", "pwd", "exit", "return", "break", "continue", "shift", "set", "unset", "export",
		"readonly", "local", "declare", "typeset", "read", "printf", "umask", "wait", "times", "getopts", "type", "let", "dirs", "pushd", "popd",
		"jobs", "ulimit", "logout", "suspend", "bg", "fg", "disown", "shopt", "caller", "help", "history",
		"eval", "trap", ".", "source", "alias", "unalias", "hash", "enable", "bind", "fc", "complete", "compgen", "compopt", "mapfile", "readarray":
		return true
	}
	return false
}

// builtin checks a shell builtin.
func (c *checker) builtin(name string, words []word, s scope) *denial {
	args := words[1:]
	switch name {
	case "eval":
		return c.eval(args, s)
	case "trap":
		return c.trap(args, s)
	case ".", "source", "alias", "enable", "bind", "fc", "complete", "compgen", "compopt":
		if len(args) == 0 || c.lists.names(name) {
			return nil
		}
		return deny(name, "cannot determine statically what it runs: to permit everything, name it in allow")
	case "hash":
		return refuseOption(name, args, "p", "it maps a name to another program")
	case "unset":
		return refuseOption(name, args, "f", "the check of a line relies on its functions")
	case "mapfile", "readarray":
		if d := refuseOption(name, args, "C", "cannot determine statically what it calls"); d != nil {
			return d
		}
	case "read", "printf", "getopts", "let":
	default:
		return nil
	}
	for _, a := range args {
		if a.known && isDangerous(strings.TrimPrefix(a.text, "-v")) {
			return deny(name, "%s controls which programs run", a.text)
		}
	}
	return nil
}

// eval checks the line that the arguments form.
func (c *checker) eval(args []word, s scope) *denial {
	texts := make([]string, len(args))
	for i, a := range args {
		if !a.known {
			return deny("eval", dynamicLine, clip(a.text))
		}
		texts[i] = a.text
	}
	if len(texts) > 0 && texts[0] == "--" {
		texts = texts[1:]
	}
	return c.line("", strings.Join(texts, " "), s.nested())
}

// trap checks the command line of a trap.
func (c *checker) trap(args []word, s scope) *denial {
	if len(args) > 0 && args[0].known && args[0].text == "--" {
		args = args[1:]
	}
	if len(args) < 2 {
		return nil // resets a signal, or lists traps
	}
	if !args[0].known {
		return deny("trap", dynamicLine, clip(args[0].text))
	}
	if slices.Contains([]string{"-", "-p", "-l", ""}, args[0].text) {
		return nil
	}
	return c.line("", args[0].text, s.nested())
}

func refuseOption(name string, args []word, letter, why string) *denial {
	for _, a := range args {
		if !a.known || strings.HasPrefix(a.text, "-") && strings.Contains(a.text, letter) {
			return deny(name, "%s", why)
		}
	}
	return nil
}

// isDangerous reports whether a variable controls which programs run, or contains a command.
func isDangerous(name string) bool {
	switch name {
	case "PATH", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "IFS", "EXECIGNORE", "BASH_CMDS", "BASH_ALIASES",
		"PYTHONSTARTUP", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "PAGER", "GIT_PAGER", "EDITOR", "VISUAL", "LESSOPEN", "LESSCLOSE", "MANPAGER", "GIT_SSH_COMMAND", "GIT_SSH":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") || strings.HasPrefix(name, "BASH_FUNC_")
}

// checkAssignment checks a word NAME=value.
func checkAssignment(w word) *denial {
	name, _, _ := strings.Cut(w.text, "=")
	if isDangerous(name) {
		return deny(name+"=", "it controls which programs run")
	}
	return nil
}
