package policy

import (
	"slices"
	"strings"
)

// isBuiltin says whether a shell does it itself, so that no leave is needed, or only for what it runs in turn.
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

// builtin checks what a shell does itself.
func (c *checker) builtin(name string, words []word, at place) *denial {
	args := words[1:]
	switch name {
	case "eval":
		return c.eval(args, at)
	case "trap":
		return c.trap(args, at)
	case ".", "source", "alias", "enable", "bind", "fc", "complete", "compgen", "compopt":
		if len(args) == 0 || c.lists.names(name) {
			return nil
		}
		return deny(name, "what it runs, or makes others run, cannot be seen: name it in allow, if anything may")
	case "hash":
		return refuseOption(name, args, "p", "it gives a program another one's name")
	case "unset":
		return refuseOption(name, args, "f", "functions are checked where they are written, and must stay")
	case "mapfile", "readarray":
		if d := refuseOption(name, args, "C", "what it calls cannot be seen"); d != nil {
			return d
		}
	case "read", "printf", "getopts", "let":
	default:
		return nil
	}
	for _, a := range args {
		if a.known && isDangerous(strings.TrimPrefix(a.text, "-v")) {
			return deny(name, "%s decides which programs run", a.text)
		}
	}
	return nil
}

// eval checks the line that its words make.
func (c *checker) eval(args []word, at place) *denial {
	texts := make([]string, len(args))
	for i, a := range args {
		if !a.known {
			return deny("eval", "its line is put together only when it runs: %s", shown(a.text))
		}
		texts[i] = a.text
	}
	if len(texts) > 0 && texts[0] == "--" {
		texts = texts[1:]
	}
	return c.line("", strings.Join(texts, " "), at.within())
}

// trap checks the line of a trap.
func (c *checker) trap(args []word, at place) *denial {
	if len(args) > 0 && args[0].known && args[0].text == "--" {
		args = args[1:]
	}
	if len(args) < 2 {
		return nil // it resets a signal, or lists them
	}
	if !args[0].known {
		return deny("trap", "its line is put together only when it runs: %s", shown(args[0].text))
	}
	if slices.Contains([]string{"-", "-p", "-l", ""}, args[0].text) {
		return nil
	}
	return c.line("", args[0].text, at.within())
}

func refuseOption(name string, args []word, letter, why string) *denial {
	for _, a := range args {
		if !a.known || strings.HasPrefix(a.text, "-") && strings.Contains(a.text, letter) {
			return deny(name, "%s", why)
		}
	}
	return nil
}

// isDangerous says whether a variable decides which programs run, or is run itself.
func isDangerous(name string) bool {
	switch name {
	case "PATH", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "IFS", "EXECIGNORE", "BASH_CMDS", "BASH_ALIASES",
		"PYTHONSTARTUP", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "PAGER", "GIT_PAGER", "EDITOR", "VISUAL", "LESSOPEN", "LESSCLOSE", "MANPAGER", "GIT_SSH_COMMAND", "GIT_SSH":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") || strings.HasPrefix(name, "BASH_FUNC_")
}

// checkAssigned checks a word NAME=value.
func checkAssigned(w word) *denial {
	name, _, _ := strings.Cut(w.text, "=")
	if isDangerous(name) {
		return deny(name+"=", "it decides which programs run")
	}
	return nil
}
