package worktree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/sluice-dev/sluice/schemas"
)

// IgnoreFile is the file in the root whose patterns, in .dockerignore's syntax, exclude paths from a sync. The file itself
// is synced. An ignored path stays as it is on both sides: it does not count as deleted.
const IgnoreFile = ".sandboxignore"

const maxIgnoreFile = 1 << 20

// Ignore matches the paths to leave alone. A nil Ignore matches none.
type Ignore struct {
	matcher *patternmatcher.PatternMatcher
}

// LoadIgnore reads [IgnoreFile], where root has one, and adds the extra patterns.
func LoadIgnore(root *os.Root, extra []string) (*Ignore, error) {
	data, err := ReadOwn(root, IgnoreFile, maxIgnoreFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(data))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %w", IgnoreFile, err)
	}
	if patterns = append(patterns, extra...); len(patterns) == 0 {
		return nil, nil
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %w", IgnoreFile, err)
	}
	return &Ignore{matcher: m}, nil
}

// Match reports whether the path is ignored. The ignore file itself never is, since it must reach the other side.
func (g *Ignore) Match(path string) bool {
	if g == nil || path == IgnoreFile || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	hit, err := g.matcher.MatchesOrParentMatches(path)
	return err == nil && hit
}

// prunes reports whether no pattern includes anything again, so that an ignored folder need not be walked.
func (g *Ignore) prunes() bool { return g != nil && !g.matcher.Exclusions() }
