package policy

import (
	"slices"
	"strings"
)

// wrapper describes a program that runs the command in its arguments.
type wrapper struct {
	flags    string   // letters of options without a value
	values   string   // letters of options whose value is the rest of their word, or the next word
	attached string   // letters of options whose optional value is the rest of their word
	long     []string // long options without a value, or with one after =
	longVal  []string // long options with a value after =, or in the next word
	before   int      // number of words before the command
	assigns  bool     // NAME=value may come before the command
	numbers  bool     // -5 is an option
	addsArgs bool     // adds arguments from its input to the command
	builtin  bool     // a shell builtin, which needs no allow pattern
}

// wrappers returns the programs whose command the policy can determine, by name.
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
			flags: "0rtpxo", values: "adEILnPs", attached: "eil", addsArgs: true,
			long:    []string{"null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty", "eof", "replace", "max-lines"},
			longVal: []string{"arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"},
		},
		"busybox": {}, "toybox": {},
		"command": {flags: "pvV", builtin: true},
		"builtin": {builtin: true},
		"exec":    {flags: "cl", values: "a", builtin: true},
	}
}

// inner returns the command inside, and the values of the options before it by letter or name. It refuses an unknown option, since
// the next word may be its value or the command.
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
			return nil, nil, nil, deny(name, unknownValue, clip(at.text))
		}
		rest := words[1:]
		switch {
		case at.text == "--":
			w = &wrapper{before: w.before, assigns: w.assigns, addsArgs: w.addsArgs}
			words = rest
			continue
		case len(at.text) > 1 && at.text[0] == '-' && !(w.flags == "" && w.values == "" && w.attached == "" && len(w.long) == 0 && len(w.longVal) == 0):
			taken, ok := w.option(at.text, rest, options)
			if !ok {
				return nil, nil, nil, deny(name, unknownOption, clip(at.text))
			}
			if taken && len(rest) > 0 {
				if rest[0].many {
					return nil, nil, nil, deny(name, unknownValue, clip(rest[0].text))
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
			return nil, nil, nil, deny(name, unknownOption, clip(at.text))
		}
		return words, options, assigned, nil
	}
	return nil, options, assigned, nil
}

// option parses one word of options. taken is true when the next word is the value of the last one.
func (w *wrapper) option(text string, rest []word, options map[string]string) (taken, ok bool) {
	next := ""
	if len(rest) > 0 {
		next = rest[0].text
	}
	if long, isLong := strings.CutPrefix(text, "--"); isLong {
		name, value, given := strings.Cut(long, "=")
		options[name] = value
		if slices.Contains(w.longVal, name) {
			if !given {
				options[name] = next
			}
			return !given, true
		}
		return false, slices.Contains(w.long, name)
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

// opaque reports whether a program runs others in ways that the policy does not analyze. Every policy refuses it, unless allow
// names it: then everything that it runs is allowed.
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
