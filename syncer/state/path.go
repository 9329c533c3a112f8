package state

import (
	"strings"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/schemas"
)

// ReservedName is the name of the state file, local and remote. Names in the root that equal it, or begin with it and a
// dot, belong to Sluice and are never synced.
const ReservedName = ".sandbox-state"

// The longest name and the longest path that common file systems and Linux accept, in bytes.
const (
	MaxName = 255
	MaxPath = 4096
)

// Reserved reports whether the path belongs to Sluice, on this system or on one where the case of letters does not matter, or
// invisible characters do not: such names are one there.
func Reserved(p string) bool {
	if p == "" || p[0] != '.' && p[0] < utf8.RuneSelf {
		return false
	}
	name, _, _ := strings.Cut(p, "/")
	visible := []rune(strings.Map(dropInvisible, name))
	n := len(ReservedName)
	return len(visible) >= n && strings.EqualFold(string(visible[:n]), ReservedName) && (len(visible) == n || visible[n] == '.')
}

// dropInvisible drops the characters that HFS+ ignores in names.
func dropInvisible(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// LeadsOutside reports whether a symlink's target may be outside the root: it is absolute, has more ".." than there are
// folders above, or a ".." after a name. That name may be a symlink to a place further up.
func LeadsOutside(path, target string) bool {
	if target == "" || target[0] == '/' {
		return true
	}
	up, named := strings.Count(path, "/"), false
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
		case "..":
			if up--; up < 0 || named {
				return true
			}
		default:
			named = true
		}
	}
	return false
}

// ComparePaths orders paths as a walk visits them: a folder comes before its content, and that before the folder's next
// sibling. This is byte order with the slash before every other byte. Every list of nodes is in this order.
func ComparePaths(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if x, y := a[i], b[i]; x != y {
			if x == '/' {
				return -1
			}
			if y == '/' {
				return 1
			}
			if x < y {
				return -1
			}
			return 1
		}
	}
	return len(a) - len(b)
}

// Parent returns the folder of p, "" for the root.
func Parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// Within reports whether p is in the folder dir, at any depth.
func Within(p, dir string) bool {
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// Clip shortens text from an untrusted state for errors and logs: to 120 bytes.
func Clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// CheckPath returns nil for a relative, slash-separated path that stays in its root, and else an invalid_argument error.
func CheckPath(p string) error {
	bad := func(why string) error {
		return schemas.Errorf(schemas.CodeInvalidArgument, "path %q: %s", Clip(p), why).With("path", Clip(p))
	}
	switch {
	case p == "":
		return bad("it is empty")
	case p[0] == '/':
		return bad("it is absolute")
	case len(p) > MaxPath:
		return bad("it is too long")
	case strings.IndexByte(p, 0) >= 0:
		return bad("it holds a NUL byte")
	case Reserved(p):
		return bad("the name is reserved for sync")
	}
	for rest, more := p, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		switch {
		case name == "":
			return bad("it has an empty segment")
		case name == "." || name == "..":
			return bad("it has the segment " + name)
		case len(name) > MaxName:
			return bad("a name in it is too long")
		}
	}
	return nil
}
