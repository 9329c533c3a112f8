package syncer

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/sluice-dev/sluice/schemas"
)

// IgnoreFile is the file in the root whose patterns, in .dockerignore's syntax, keep paths out of a sync. It is itself
// synced. A path that is ignored is left alone on both sides: it is not taken for one that was deleted.
const IgnoreFile = ".sandboxignore"

const maxIgnoreFile = 1 << 20

// ignorer decides what a sync leaves alone. A nil one leaves nothing out.
type ignorer struct {
	matcher *patternmatcher.PatternMatcher
}

func loadIgnore(root *os.Root, extra []string) (*ignorer, error) {
	patterns := extra
	data, err := readSmall(root, IgnoreFile, maxIgnoreFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		listed, err := ignorefile.ReadAll(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %w", IgnoreFile, err)
		}
		patterns = append(listed, extra...)
	}
	if len(patterns) == 0 {
		return nil, nil
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %w", IgnoreFile, err)
	}
	return &ignorer{matcher: m}, nil
}

// ignored says whether the path is left alone. The ignore file itself never is, since it must reach the other side.
func (g *ignorer) ignored(path string) bool {
	if g == nil || path == IgnoreFile || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	hit, err := g.matcher.MatchesOrParentMatches(path)
	return err == nil && hit
}

// prunes says whether nothing under an ignored folder can be wanted, so that it need not be walked.
func (g *ignorer) prunes() bool { return g != nil && !g.matcher.Exclusions() }
