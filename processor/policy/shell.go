package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Limits of the analysis, so that a caller cannot keep a worker busy.
const (
	maxLine      = 16 << 10  // bytes of one line: the parser's stack grows with them
	maxBrackets  = 100       // open brackets at a time: the parser's cost of each grows with the number around it
	maxBytes     = 256 << 10 // bytes of all lines of a command
	maxLines     = 512       // lines of a command
	maxFunctions = 64        // functions of one line; with more, none counts as defined
)

// line checks every command of a shell line. Shells differ in syntax: unless the shell is known, the line must be allowed in each
// syntax in which it parses.
func (c *checker) line(shell, text string, s scope) *denial {
	name := shell
	if name == "" {
		name = "eval"
	}
	switch {
	case s.depth > maxDepth:
		return deny(name, "more than %d commands are nested", maxDepth)
	case len(text) > maxLine:
		return deny(name, "its line is %d bytes, the limit is %d: use a file", len(text), maxLine)
	case bracketDepth(text) > maxBrackets:
		return deny(name, "its line has more than %d nested brackets: use a file", maxBrackets)
	}
	variants := []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX}
	switch {
	case shell == "bash" || shell == "rbash":
		variants = variants[:1]
	case shell == "" && s.lang != 0:
		variants = []syntax.LangVariant{s.lang}
	}
	var failed error
	parsed := false
	for _, lang := range variants {
		c.lines++
		c.bytes += len(text)
		if c.lines > maxLines || c.bytes > maxBytes {
			return deny(name, "its nested lines are over %d lines or %d bytes: use a file", maxLines, maxBytes)
		}
		s.lang = lang
		file, err := syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(text), "")
		if err != nil {
			failed = err
			continue
		}
		parsed = true
		if d := c.file(file, s); d != nil {
			return d
		}
	}
	if !parsed {
		return deny(name, "its line does not parse: %s", clip(failed.Error()))
	}
	return nil
}

// bracketDepth returns the largest number of open brackets. It ignores quotes, which only the parser knows.
func bracketDepth(text string) int {
	open, depth := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(', '{', '[':
			open++
			depth = max(depth, open)
		case ')', '}', ']':
			open = max(0, open-1)
		}
	}
	return depth
}

func (c *checker) file(file *syntax.File, s scope) *denial {
	s.shell = true
	inherited := s.functions
	var found *denial
	declared := topFunctions(file)
	syntax.Walk(file, func(n syntax.Node) bool {
		if found != nil || n == nil {
			return false
		}
		s := s
		s.functions = inherited
		for name, pos := range declared {
			if n.Pos().After(pos) {
				s.functions = append(s.functions[:len(s.functions):len(s.functions)], name)
			}
		}
		found = c.node(n, s)
		return found == nil
	})
	return found
}

// topFunctions returns the functions that are certainly defined after their declaration. One that is declared in a condition or a
// subshell may not be.
func topFunctions(file *syntax.File) map[string]syntax.Pos {
	out := map[string]syntax.Pos{}
	for _, stmt := range file.Stmts {
		if len(out) > maxFunctions {
			return nil
		}
		if f, ok := stmt.Cmd.(*syntax.FuncDecl); ok && f.Name != nil && !stmt.Background && len(stmt.Redirs) == 0 {
			if _, twice := out[f.Name.Value]; !twice {
				out[f.Name.Value] = f.Pos()
			}
		}
	}
	return out
}

// node checks one node of the syntax tree, without the nodes inside it.
func (c *checker) node(n syntax.Node, s scope) *denial {
	switch n := n.(type) {
	case *syntax.CallExpr:
		words := make([]word, len(n.Args))
		for i, w := range n.Args {
			words[i] = wordOf(w)
		}
		return c.command(words, s)
	case *syntax.Assign:
		return checkAssign(n)
	case *syntax.Redirect:
		return checkRedirect(n)
	case *syntax.WordIter:
		if isDangerous(n.Name.Value) {
			return deny("for", "%s controls which programs run", n.Name.Value)
		}
	case *syntax.FuncDecl:
		if n.Name != nil {
			if p := c.lists.denies(n.Name.Value); p != "" {
				return &denial{command: n.Name.Value, pattern: p, why: "pattern " + p + " in deny matches it"}
			}
		}
	case *syntax.ParamExp:
		if n.Exp != nil && n.Exp.Op == syntax.OtherParamOps {
			return deny(source(n), "its expansion may run a command")
		}
		if n.Param != nil && isDangerous(n.Param.Value) && n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
			return deny(source(n), "it controls which programs run")
		}
	}
	return nil
}

// checkAssign checks an assignment. A shell runs a substitution in a variable's text when it evaluates the text as a number.
func checkAssign(a *syntax.Assign) *denial {
	if a.Name == nil {
		if a.Value != nil {
			if w := wordOf(a.Value); !w.known {
				return deny(w.text, "cannot determine statically which variable it sets")
			} else if d := checkAssignment(w); d != nil {
				return d
			}
		}
		return nil
	}
	if isDangerous(a.Name.Value) && !a.Naked {
		return deny(a.Name.Value+"=", "it controls which programs run")
	}
	if a.Value == nil {
		return nil
	}
	if w := wordOf(a.Value); w.known && (strings.Contains(w.text, "$(") || strings.Contains(w.text, "`")) {
		return deny(a.Name.Value+"=", "its value contains a quoted command, which may run later")
	}
	return nil
}

// checkRedirect refuses paths for which bash opens a network connection.
func checkRedirect(r *syntax.Redirect) *denial {
	if r.Word == nil {
		return nil
	}
	text := wordOf(r.Word).text
	if strings.Contains(text, "/dev/tcp/") || strings.Contains(text, "/dev/udp/") {
		return deny(r.Op.String()+text, "it opens a connection")
	}
	return nil
}
