package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Bounds on what is looked into: what a caller sends must not keep a worker busy.
const (
	maxLine      = 16 << 10 // of one line, in bytes: the parser's depth, and so its stack, grow with it
	maxNested    = 100      // brackets open at a time: what a parser takes for each grows with all those around it
	maxRead      = 256 << 10
	maxLines     = 512
	maxFunctions = 64 // of one line; with more of them, none is known as one
)

// line checks every command of a shell line. Shells differ in what they make of one: for a shell that may be any, whatever reading
// there is must be allowed.
func (c *checker) line(shell, text string, at place) *denial {
	name := shell
	if name == "" {
		name = "eval"
	}
	switch {
	case at.depth > maxDepth:
		return deny(name, "it stands deeper than %d commands within each other", maxDepth)
	case len(text) > maxLine:
		return deny(name, "its line is %d bytes, and %d are looked into at most: use a file", len(text), maxLine)
	case nested(text) > maxNested:
		return deny(name, "its line has more than %d brackets open at a time: use a file", maxNested)
	}
	readings := []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX}
	switch {
	case shell == "bash" || shell == "rbash":
		readings = readings[:1]
	case shell == "" && at.lang != 0:
		readings = []syntax.LangVariant{at.lang}
	}
	var failed error
	read := false
	for _, lang := range readings {
		c.lines++
		c.read += len(text)
		if c.lines > maxLines || c.read > maxRead {
			return deny(name, "there are too many lines within each other: use a file")
		}
		at.lang = lang
		file, err := syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(text), "")
		if err != nil {
			failed = err
			continue
		}
		read = true
		if d := c.file(file, at); d != nil {
			return d
		}
	}
	if !read {
		return deny(name, "its line cannot be read: %s", shown(failed.Error()))
	}
	return nil
}

// nested is how many brackets are open at a time, at most. Quotes are not looked at: that is what the parser is for.
func nested(text string) int {
	open, most := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(', '{', '[':
			open++
			most = max(most, open)
		case ')', '}', ']':
			open = max(0, open-1)
		}
	}
	return most
}

func (c *checker) file(file *syntax.File, at place) *denial {
	at.shell = true
	inherited := at.functions
	var found *denial
	declared := topFunctions(file)
	syntax.Walk(file, func(n syntax.Node) bool {
		if found != nil || n == nil {
			return false
		}
		at := at
		at.functions = inherited
		for name, pos := range declared {
			if n.Pos().After(pos) {
				at.functions = append(at.functions[:len(at.functions):len(at.functions)], name)
			}
		}
		found = c.node(n, at)
		return found == nil
	})
	return found
}

// topFunctions are the functions that are sure to be there for what stands after them: one that is declared in a condition, or
// in a subshell, may not be.
func topFunctions(file *syntax.File) map[string]syntax.Pos {
	out := map[string]syntax.Pos{}
	for _, s := range file.Stmts {
		if len(out) > maxFunctions {
			return nil
		}
		if f, ok := s.Cmd.(*syntax.FuncDecl); ok && f.Name != nil && !s.Background && len(s.Redirs) == 0 {
			if _, twice := out[f.Name.Value]; !twice {
				out[f.Name.Value] = f.Pos()
			}
		}
	}
	return out
}

// node checks one node of the tree; those in it are checked by themselves.
func (c *checker) node(n syntax.Node, at place) *denial {
	switch n := n.(type) {
	case *syntax.CallExpr:
		words := make([]word, len(n.Args))
		for i, w := range n.Args {
			words[i] = wordOf(w)
		}
		return c.command(words, at)
	case *syntax.Assign:
		return checkAssign(n)
	case *syntax.Redirect:
		return checkRedirect(n)
	case *syntax.WordIter:
		if isDangerous(n.Name.Value) {
			return deny("for", "%s decides which programs run", n.Name.Value)
		}
	case *syntax.FuncDecl:
		if n.Name != nil {
			if p := c.lists.denies(n.Name.Value); p != "" {
				return &denial{command: n.Name.Value, pattern: p, why: "deny has the pattern " + p}
			}
		}
	case *syntax.ParamExp:
		if n.Exp != nil && n.Exp.Op == syntax.OtherParamOps {
			return deny(source(n), "what it is expanded to may be run")
		}
		if n.Param != nil && isDangerous(n.Param.Value) && n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
			return deny(source(n), "it decides which programs run")
		}
	}
	return nil
}

// checkAssign looks at a variable that is set. A text with a substitution in it is run where a shell takes it for a number.
func checkAssign(a *syntax.Assign) *denial {
	if a.Name == nil {
		if a.Value != nil {
			if w := wordOf(a.Value); !w.known {
				return deny(w.text, "which variable it sets is not known before it runs")
			} else if d := checkAssigned(w); d != nil {
				return d
			}
		}
		return nil
	}
	if isDangerous(a.Name.Value) && !a.Naked {
		return deny(a.Name.Value+"=", "it decides which programs run")
	}
	if a.Value == nil {
		return nil
	}
	if w := wordOf(a.Value); w.known && (strings.Contains(w.text, "$(") || strings.Contains(w.text, "`")) {
		return deny(a.Name.Value+"=", "its value holds a command in quotes, which may be run later")
	}
	return nil
}

// checkRedirect refuses the network by another name: bash opens a connection for such a path.
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
