package schemas

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Each check function returns nil, or an invalid_argument error with the path of the field.

// first returns the first error that is not nil.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// oneOf accepts the listed values, and the empty one.
func oneOf[T ~string](path string, v T, values []T) error {
	if v == "" || slices.Contains(values, v) {
		return nil
	}
	return invalid(path, "unknown %.40q: one of %v", string(v), values)
}

func checkOptionalID(field, s string) error {
	if s == "" {
		return nil
	}
	return CheckID(field, s)
}

// checkImage refuses names that no engine accepts. The engine checks the form of the others.
func checkImage(name string) error {
	if len(name) > MaxImageBytes {
		return invalid("image", "%d bytes, the limit is %d", len(name), MaxImageBytes)
	}
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return invalid("image", "%.40q is not an image name", name)
		}
	}
	return nil
}

func checkOutputLimit(path string, limit int64) error {
	if limit < 0 || limit > MaxOutputLimit {
		return invalid(path, "%d is not between 0 and %d bytes", limit, MaxOutputLimit)
	}
	return nil
}

func checkMillis(path string, ms int64) error {
	if ms < 0 || ms > MaxTimeoutMS {
		return invalid(path, "%d is not between 0 and %d milliseconds", ms, MaxTimeoutMS)
	}
	return nil
}

// checkText refuses what execve and file systems cannot hold.
func checkText(path, s string) error {
	if strings.IndexByte(s, 0) >= 0 {
		return invalid(path, "contains a NUL byte")
	}
	if !utf8.ValidString(s) {
		return invalid(path, "not valid UTF-8")
	}
	return nil
}

// checkLabel checks a text of at most limit bytes.
func checkLabel(path, s string, limit int) error {
	if len(s) > limit {
		return invalid(path, "%d bytes, the limit is %d", len(s), limit)
	}
	return checkText(path, s)
}

func checkPath(path, s string) error { return checkLabel(path, s, MaxPathBytes) }

func checkAbsolute(at, file string) error {
	if err := checkPath(at, file); err != nil {
		return err
	}
	if !path.IsAbs(file) || path.Clean(file) != file {
		return invalid(at, "%.60q is not an absolute path without . and ..", file)
	}
	return nil
}

// checkURL accepts http and https without a password, since everyone who can list templates can read their URLs.
func checkURL(path, s string) error {
	if err := checkPath(path, s); err != nil {
		return err
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return invalid(path, "not a URL of the form https://host/path")
	case u.User != nil:
		return invalid(path, "a URL must not contain a user or password")
	}
	return nil
}

// checkWords checks a program and its arguments.
func checkWords(path string, words []string) error {
	switch {
	case len(words) == 0 || words[0] == "":
		return invalid(path, "missing: name the program to run")
	case len(words) > maxWords:
		return invalid(path, "%d words, the limit is %d", len(words), maxWords)
	}
	for i, word := range words {
		if err := checkPath(fmt.Sprintf("%s[%d]", path, i), word); err != nil {
			return err
		}
	}
	return nil
}

func checkEnv(path, name, value string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") || !utf8.ValidString(name) {
		return invalid(path, "%q is not an environment name", brief(name, maxErrorPath))
	}
	// The supervisor finds a process's descendants by SLUICE_PROCESS: callers must not be able to forge it.
	if strings.HasPrefix(name, "SLUICE_") {
		return invalid(path+"."+name, "names that begin with SLUICE_ are reserved for Sluice")
	}
	return checkText(path+"."+name, value)
}

func checkTags(path string, tags map[string]string) error {
	if len(tags) > MaxTags {
		return invalid(path, "%d tags, the limit is %d", len(tags), MaxTags)
	}
	for name, value := range tags {
		if name == "" {
			return invalid(path, "a tag has no name")
		}
		if err := first(checkLabel(path, name, MaxTagBytes), checkLabel(path+"."+name, value, MaxTagBytes)); err != nil {
			return err
		}
	}
	return nil
}

// invalid returns an invalid_argument error whose message begins with the path of a field.
func invalid(path, format string, args ...any) error {
	path = brief(path, maxErrorPath)
	return Errorf(CodeInvalidArgument, "%s", brief(path+": "+fmt.Sprintf(format, args...), maxErrorMessage)).With("path", path)
}

// brief returns the first limit bytes of s as valid UTF-8, with … at a cut.
func brief(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
