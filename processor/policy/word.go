package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is one word of a command, as far as it can be determined statically.
type word struct {
	text string
	// known is true when the word is exactly text. Otherwise text is its source.
	known bool
	// many is true when the word may expand to several words, or none.
	many bool
}

func literal(text string) word { return word{text: text, known: true} }

// unknownWords stands for words from another source, such as the input of xargs.
func unknownWords(text string) word { return word{text: text, many: true} }

// wordOf converts a word of a shell line.
func wordOf(w *syntax.Word) word {
	out := word{known: true}
	var b, bare strings.Builder // the word's text, and its unquoted part, which a shell may expand
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			unescape(part.Value, &b, &bare)
			out.known = out.known && (i > 0 || !strings.HasPrefix(part.Value, "~"))
		case *syntax.SglQuoted:
			b.WriteString(part.Value)
			// $'…' has escapes that not every shell supports.
			out.known = out.known && !part.Dollar
		case *syntax.DblQuoted:
			out.quoted(part, &b)
		default:
			out.known, out.many = false, true
		}
	}
	out.text = b.String()
	out.known = out.known && !expands(bare.String())
	if !out.known {
		out.text = source(w)
	}
	return out
}

// expands reports whether a shell expands an unquoted text: a pattern, or braces with alternatives.
func expands(bare string) bool {
	if bare == "[" || bare == "[[" { // test
		return false
	}
	if strings.ContainsAny(bare, "*?[") {
		return true
	}
	_, rest, braces := strings.Cut(bare, "{")
	return braces && (strings.Contains(rest, ",") || strings.Contains(rest, ".."))
}

// quoted adds the content of double quotes.
func (out *word) quoted(q *syntax.DblQuoted, b *strings.Builder) {
	out.known = out.known && !q.Dollar // $"…" is translated
	for _, part := range q.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.WriteString(unescapeQuoted(part.Value))
		case *syntax.ParamExp:
			out.known = false
			// "$@" and "${a[@]}" expand to several words even in quotes.
			out.many = out.many || strings.Contains(source(part), "@")
		default:
			out.known = false
		}
	}
}

// unescape removes the backslashes from an unquoted text. Escaped characters are not added to bare.
func unescape(s string, text, bare *strings.Builder) {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			text.WriteByte(s[i])
			bare.WriteByte(s[i])
			continue
		}
		i++
		if i < len(s) && s[i] != '\n' {
			text.WriteByte(s[i])
		}
	}
}

func unescapeQuoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// source returns the source of a node.
func source(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		return "…"
	}
	return b.String()
}
