package template

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	// File is its name, Line counts from 1; 0 where the file as a whole is meant.
	File string
	Line int
	// Path is the field, as the file spells it; empty where none is to blame.
	Path string
	// Text says what is wrong with it.
	Text string
}

// Error is file:line: path: text.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Path != "" {
		b.WriteString(": " + p.Path)
	}
	return b.String() + ": " + p.Text
}

// maxProblems bounds how much is told of one file.
const maxProblems = 50

// Problems is all that is wrong, in the order of the lines. As an error it is invalid_argument.
type Problems []Problem

// Error is one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the error its code.
func (p Problems) Unwrap() error { return schemas.Errorf(schemas.CodeInvalidArgument, "%s", p.Error()) }
