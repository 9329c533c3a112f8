package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is one word of a command, as far as it can be told before the command runs.
type word struct {
	text string
	// known says that the word will be text, and nothing else. Where it is not, text is what the line says.
	known bool
	// many says that the word may become several, or none.
	many bool
}

func literal(text string) word { return word{text: text, known: true} }

// unknown is a word that comes from elsewhere: what xargs reads, for one.
func unknown(text string) word { return word{text: text, many: true} }

// wordOf reads a word of a shell line.
func wordOf(w *syntax.Word) word {
	out := word{known: true}
	var b, bare strings.Builder // the word's text, and what of it a shell might expand
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			unescape(part.Value, &b, &bare)
			out.known = out.known && (i > 0 || !strings.HasPrefix(part.Value, "~"))
		case *syntax.SglQuoted:
			b.WriteString(part.Value)
			// $'…' has escapes, which not every shell reads.
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

// expands says whether a shell makes something else of an unquoted text: a pattern, or braces with a choice in them.
func expands(bare string) bool {
	if bare == "[" || bare == "[[" { // test
		return false
	}
	if strings.ContainsAny(bare, "*?[") {
		return true
	}
	_, choice, braces := strings.Cut(bare, "{")
	return braces && (strings.Contains(choice, ",") || strings.Contains(choice, ".."))
}

// quoted adds what stands in double quotes.
func (out *word) quoted(q *syntax.DblQuoted, b *strings.Builder) {
	out.known = out.known && !q.Dollar // $"…" is looked up in a catalogue
	for _, part := range q.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.WriteString(unescapeQuoted(part.Value))
		case *syntax.ParamExp:
			out.known = false
			// "$@" and "${a[@]}" are several words even in quotes.
			out.many = out.many || strings.Contains(source(part), "@")
		default:
			out.known = false
		}
	}
}

// unescape takes the backslashes out of an unquoted text. What they made plain does not go to bare.
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

// source is a node as the line has it.
func source(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		return "…"
	}
	return b.String()
}
