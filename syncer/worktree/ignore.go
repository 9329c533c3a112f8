package worktree

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/patternmatcher/ignorefile"

	"github.com/sluice-dev/sluice/schemas"
)

// IgnoreFile is the file in the root whose patterns, in .dockerignore's syntax, exclude paths from a sync. The file itself
// is synced. An ignored path stays as it is on both sides: it does not count as deleted.
const IgnoreFile = ".sandboxignore"

// The most that an ignore file may have: its writer may be hostile, and every path is matched against every pattern. The patterns of
// a configuration have the same limits.
const (
	maxIgnoreFile  = 64 << 10 // bytes
	maxPatterns    = 1000
	maxPatternSize = 1024 // bytes
)

// Ignore matches the paths to leave alone. A nil Ignore matches none.
type Ignore struct {
	rules      []rule
	include    []rule // none includes everything
	exclusions bool   // a rule includes again what an earlier one ignores
}

// LoadIgnore reads [IgnoreFile], where root has one, and adds the extra patterns. Of what they leave, only the paths that match include
// are not ignored, where there are such patterns. Errors: too_large, invalid_argument.
func LoadIgnore(root *os.Root, extra, include []string) (*Ignore, error) {
	data, err := ReadOwn(root, IgnoreFile, maxIgnoreFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(data))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %w", IgnoreFile, err)
	}
	if patterns = append(patterns, extra...); len(patterns)+len(include) == 0 {
		return nil, nil
	}
	g := &Ignore{}
	if g.rules, err = compileRules(IgnoreFile, patterns); err != nil {
		return nil, err
	}
	if g.include, err = compileRules("include", include); err != nil {
		return nil, err
	}
	g.exclusions = slices.ContainsFunc(g.rules, func(r rule) bool { return r.exclusion })
	return g, nil
}

// Match reports whether the path is ignored. The ignore file itself never is, since it must reach the other side. Its result is void
// once ctx has ended.
func (g *Ignore) Match(ctx context.Context, path string) bool {
	if g == nil || path == IgnoreFile || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	return len(g.include) > 0 && !matchRules(ctx, g.include, path) || matchRules(ctx, g.rules, path)
}

// prunes reports whether no pattern includes anything again, so that an ignored folder need not be walked.
func (g *Ignore) prunes() bool { return g != nil && len(g.include) == 0 && !g.exclusions }

// rule is one pattern: it matches a path, and everything below it, in time linear in the path.
type rule struct {
	exclusion bool
	match     func(path string) bool
}

// matchRules reports whether the last rule that applies to a path is not an exclusion.
func matchRules(ctx context.Context, rules []rule, path string) (matched bool) {
	for i := range rules {
		if r := &rules[i]; r.exclusion == matched && r.match(path) {
			matched = !matched
		}
		if ctx.Err() != nil {
			return false
		}
	}
	return matched
}

func compileRules(file string, patterns []string) ([]rule, error) {
	if len(patterns) > maxPatterns {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "%s: %d patterns, the limit is %d: use fewer, with wildcards", file, len(patterns), maxPatterns)
	}
	rules := make([]rule, 0, len(patterns))
	for _, p := range patterns {
		if len(p) > maxPatternSize {
			return nil, schemas.Errorf(schemas.CodeTooLarge, "%s: a pattern of %d bytes, the limit is %d", file, len(p), maxPatternSize)
		}
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		r := rule{}
		glob, exclusion := strings.CutPrefix(filepath.Clean(p), "!")
		_, err := path.Match(glob, "")
		if err == nil && glob == "" {
			err = errors.New("the pattern is empty")
		}
		if err == nil {
			r.exclusion = exclusion
			r.match, err = compileGlob(glob)
		}
		if err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %.80q: %w", file, p, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// compileGlob returns the test whether a pattern in .dockerignore's syntax matches a path or a folder above it. It does what
// patternmatcher does, which tests each folder above a path by itself: quadratic in the path's depth.
func compileGlob(glob string) (func(path string) bool, error) {
	if !strings.ContainsAny(glob, `*?[]\`) {
		return func(path string) bool {
			rest, ok := strings.CutPrefix(path, glob)
			return ok && (rest == "" || rest[0] == '/')
		}, nil
	}
	if suffix, ok := strings.CutPrefix(glob, "**"); ok && !strings.ContainsAny(suffix, `*?[]\`) {
		return func(path string) bool { // ** is anything, and **/ nothing too
			return strings.HasSuffix(path, suffix) || strings.Contains(path, suffix+"/") ||
				strings.HasPrefix(suffix, "/") && (path == suffix[1:] || strings.HasPrefix(path, suffix[1:]+"/"))
		}, nil
	}
	re, err := regexp.Compile(globRegexp(glob))
	if err != nil {
		return nil, err
	}
	return re.MatchString, nil
}

// globRegexp returns a pattern as a regular expression, which Go matches in linear time.
func globRegexp(glob string) string {
	var b strings.Builder
	b.WriteString(`(?s)^(?:`)
	class := false
	for rest := []rune(glob); len(rest) > 0; {
		c := rest[0]
		rest = rest[1:]
		switch {
		case c == '\\' && len(rest) > 0:
			b.WriteString(regexp.QuoteMeta(string(rest[0])))
			rest = rest[1:]
		case class || c == '[':
			class = c != ']'
			b.WriteRune(c)
		case c == '*' && len(rest) > 0 && rest[0] == '*':
			if rest = rest[1:]; len(rest) > 0 && rest[0] == '/' {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				b.WriteString(`.*`)
			} else {
				b.WriteString(`(?:.*/)?`)
			}
		case c == '*':
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	b.WriteString(`)(?:/.*)?$`)
	return b.String()
}
