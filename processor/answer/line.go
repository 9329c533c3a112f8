package answer

import (
	"encoding/json"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// line holds the known fields of a JSON line: those of Claude Code's stream-json and of Codex's --json.
type line struct {
	Type    string         `json:"type"`
	Result  string         `json:"result"`
	Usage   *schemas.Usage `json:"usage"`
	Message *lineMessage   `json:"message"`
	Item    *lineItem      `json:"item"`
}

type lineMessage struct {
	Content []lineItem `json:"content"`
}

type lineItem struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// maxTokens is the largest token count that is accepted from an agent, per line and in total.
const maxTokens = 1 << 40

// parse reads a line. ok is false unless it is a JSON object with a type.
func parse(b []byte) (l line, ok bool) {
	if json.Unmarshal(b, &l) != nil {
		// A field may have an unknown shape. The type alone still identifies result lines.
		var typed struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(b, &typed) != nil {
			return line{}, false
		}
		l = line{Type: typed.Type}
	}
	return l, l.Type != ""
}

// isResult reports whether the line ends a turn of the agent.
func (l *line) isResult() bool { return l.Type == "result" || l.Type == "turn.completed" }

// usage returns the tokens that a result line reports. ok is false when it reports none, or counts out of range.
func (l *line) usage() (u schemas.Usage, ok bool) {
	if !l.isResult() || l.Usage == nil {
		return u, false
	}
	u = *l.Usage
	ok = u.InputTokens >= 0 && u.OutputTokens >= 0 && u.InputTokens <= maxTokens && u.OutputTokens <= maxTokens
	return u, ok
}

// text returns the part of the answer that the line holds.
func (l *line) text() string {
	var texts []string
	switch {
	case l.Type == "assistant" && l.Message != nil:
		for _, c := range l.Message.Content {
			if c.Type == "text" && c.Text != "" {
				texts = append(texts, c.Text)
			}
		}
	case l.Type == "item.completed" && l.Item != nil && l.Item.Type == "agent_message":
		texts = append(texts, l.Item.Text)
	}
	return strings.Join(texts, "\n")
}
