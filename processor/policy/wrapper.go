package policy

import (
	"strings"
)

// wrapper is a program that runs the command in its arguments.
type wrapper struct {
	flags    string   // letters of options that take nothing
	values   string   // letters of options that take the next word, or the rest of theirs
	attached string   // letters of options that take the rest of their word, if anything
	long     []string // long options that take nothing, or what follows = alone
	longVal  []string // long options that take the next word, or what follows =
	before   int      // words that stand before the command
	assigns  bool     // NAME=value may stand before the command
	numbers  bool     // -5 is an option
	adds     bool     // words from elsewhere are added to the command
	builtin  bool     // of the shell: it needs no leave of its own
}

// wrappers are the programs that can be seen through, by name.
func wrappers() map[string]wrapper {
	return map[string]wrapper{
		"env":     {flags: "i0v", values: "uC", long: []string{"ignore-environment", "null", "debug"}, longVal: []string{"unset", "chdir"}, assigns: true},
		"nohup":   {},
		"setsid":  {flags: "cfw", long: []string{"ctty", "fork", "wait"}},
		"nice":    {values: "n", longVal: []string{"adjustment"}, numbers: true},
		"ionice":  {flags: "t", values: "cn", long: []string{"ignore"}, longVal: []string{"class", "classdata"}},
		"timeout": {flags: "fpv", values: "ks", long: []string{"foreground", "preserve-status", "verbose"}, longVal: []string{"kill-after", "signal"}, before: 1},
		"stdbuf":  {values: "ioe", longVal: []string{"input", "output", "error"}},
		"time":    {flags: "pvqa", values: "fo", long: []string{"portability", "verbose", "quiet", "append"}, longVal: []string{"format", "output"}},
		"xargs": {
			flags: "0rtpxo", values: "adEILnPs", attached: "eil", adds: true,
			long:    []string{"null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty", "eof", "replace", "max-lines"},
			longVal: []string{"arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"},
		},
		"busybox": {}, "toybox": {},
		"command": {flags: "pvV", builtin: true},
		"builtin": {builtin: true},
		"exec":    {flags: "cl", values: "a", builtin: true},
	}
}

// inner is the command inside, and the values of the options before it by letter or name. It is refused where an option is not
// known, for what follows might be its value, or the command.
func (w *wrapper) inner(name string, words []word) (command []word, options map[string]string, assigned []word, d *denial) {
	options = map[string]string{}
	before := w.before
	for len(words) > 0 {
		at := words[0]
		if !at.known {
			if before > 0 && !at.many && !w.assigns {
				before--
				words = words[1:]
				continue
			}
			return nil, nil, nil, deny(name, "what it runs cannot be told before it does: %s is not known yet", shown(at.text))
		}
		rest := words[1:]
		switch {
		case at.text == "--":
			w = &wrapper{before: w.before, assigns: w.assigns, adds: w.adds}
			words = rest
			continue
		case len(at.text) > 1 && at.text[0] == '-' && !(w.flags == "" && w.values == "" && w.attached == "" && len(w.long) == 0 && len(w.longVal) == 0):
			taken, ok := w.option(at.text, rest, options)
			if !ok {
				return nil, nil, nil, deny(name, "its option %s is not known here, so that what it runs cannot be told", shown(at.text))
			}
			if taken && len(rest) > 0 {
				if rest[0].many {
					return nil, nil, nil, deny(name, "what it runs cannot be told before it does: %s is not known yet", shown(rest[0].text))
				}
				rest = rest[1:]
			}
			words = rest
			continue
		case w.assigns && strings.Contains(at.text, "="):
			assigned = append(assigned, at)
			words = rest
			continue
		case before > 0:
			before--
			words = rest
			continue
		case at.text[:min(1, len(at.text))] == "-":
			return nil, nil, nil, deny(name, "its option %s is not known here, so that what it runs cannot be told", shown(at.text))
		}
		return words, options, assigned, nil
	}
	return nil, options, assigned, nil
}

// option reads one word of options. taken says that the next word is the last one's value.
func (w *wrapper) option(text string, rest []word, options map[string]string) (taken, ok bool) {
	next := ""
	if len(rest) > 0 {
		next = rest[0].text
	}
	if long, isLong := strings.CutPrefix(text, "--"); isLong {
		name, value, given := strings.Cut(long, "=")
		options[name] = value
		for _, l := range w.long {
			if l == name {
				return false, true
			}
		}
		for _, l := range w.longVal {
			if l == name {
				if !given {
					options[name] = next
				}
				return !given, true
			}
		}
		return false, false
	}
	letters := text[1:]
	if w.numbers && strings.Trim(letters, "0123456789-+") == "" {
		return false, true
	}
	for i := range len(letters) {
		letter, tail := letters[i:i+1], letters[i+1:]
		switch {
		case strings.Contains(w.flags, letter):
			options[letter] = ""
		case strings.Contains(w.attached, letter):
			options[letter] = tail
			return false, true
		case strings.Contains(w.values, letter):
			options[letter] = tail
			if tail == "" {
				options[letter] = next
			}
			return tail == "", true
		default:
			return false, false
		}
	}
	return false, true
}

// opaque are programs that run others in ways that are not looked into. Under any policy they are refused, unless allow names
// them: then whatever they run is allowed.
func opaque(name string) bool {
	switch name {
	case "su", "sudo", "doas", "runuser", "setpriv", "capsh", "chroot", "unshare", "nsenter", "pkexec", "sg", "newgrp",
		"taskset", "chrt", "numactl", "prlimit", "choom", "cgexec", "systemd-run", "systemd-inhibit", "start-stop-daemon", "daemonize",
		"flock", "watch", "script", "scriptlive", "expect", "unbuffer", "screen", "tmux", "at", "batch", "crontab", "run-parts", "parallel",
		"strace", "ltrace", "gdb", "perf", "valgrind", "rr", "fakeroot", "proot", "bwrap", "dbus-run-session", "xvfb-run", "catchsegv",
		"ssh", "ssh-agent", "rsh", "docker", "podman", "kubectl", "zsh", "ksh", "ksh93", "mksh", "pdksh", "lksh", "oksh", "yash", "fish", "csh", "tcsh",
		"pwsh", "elvish", "nu", "xonsh", "rc", "es", "socat", "entr", "uftrace", "linux32", "linux64", "setarch", "i386", "x86_64",
		"apply", "ifne", "chronic", "gosu", "su-exec", "tini", "dumb-init", "catatonit", "s6-setuidgid", "chpst", "softlimit", "setuidgid", "envdir", "envuidgid":
		return true
	}
	return strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-musl") || strings.HasPrefix(name, "ld.so") || strings.HasPrefix(name, "ld-2.")
}
