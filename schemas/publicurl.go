package schemas

import (
	"strings"
	"unicode"
)

// PublicURL is a URL, or a comma-separated list of them, for people to read: without user, password, token, query and fragment.
func PublicURL(urls string) string {
	parts := strings.Split(urls, ",")
	for i, p := range parts {
		scheme, rest, ok := strings.Cut(p, "://")
		if !ok {
			scheme, rest = "nats", p
		}
		rest = rest[strings.LastIndex(rest, "@")+1:]
		if end := strings.IndexAny(rest, "?#"); end >= 0 {
			rest = rest[:end]
		}
		parts[i] = scheme + "://" + rest
	}
	return strings.Join(parts, ",")
}

// HasUserInfo reports whether a URL, or one of a comma-separated list, has a user, a password or a token.
func HasUserInfo(urls string) bool { return strings.Contains(urls, "@") }

// minSecret is the length of the shortest part of a URL's credentials that is replaced in an error.
const minSecret = 3

// PublicURLError is err about these URLs without their credentials in its text.
func PublicURLError(err error, urls string) error {
	if err == nil || !HasUserInfo(urls) {
		return err
	}
	text := err.Error()
	for p := range strings.SplitSeq(urls, ",") {
		if _, rest, ok := strings.Cut(p, "://"); ok {
			p = rest
		}
		secret := p[:max(strings.LastIndex(p, "@"), 0)]
		// An error may quote any part of it, as that of a token with a slash, which a parser takes for a path.
		for _, part := range append([]string{secret}, strings.FieldsFunc(secret, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })...) {
			if len(part) >= minSecret {
				text = strings.ReplaceAll(text, part, "xxxxx")
			}
		}
	}
	return publicError{text, err}
}

// publicError is an error with another text.
type publicError struct {
	text string
	err  error
}

// Error is the text.
func (e publicError) Error() string { return e.text }

// Unwrap returns the error.
func (e publicError) Unwrap() error { return e.err }
