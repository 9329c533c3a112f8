package answer

import (
	"encoding/json"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// line is a JSON line of an agent, as far as it is understood: the shapes of Claude Code's stream-json and Codex's --json.
type line struct {
	Type    string       `json:"type"`
	Result  string       `json:"result"`
	Usage   *lineUsage   `json:"usage"`
	Message *lineMessage `json:"message"`
	Item    *lineItem    `json:"item"`
}

type lineUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

type lineMessage struct {
	Content []lineItem `json:"content"`
}

type lineItem struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// maxTokens is the most tokens that an agent is believed to have used.
const maxTokens = 1 << 40

// parse reads a line. false: it is not a JSON object with a type.
func parse(b []byte) (l line, ok bool) {
	// A field of another shape than expected leaves the rest of the line as it is.
	if err := json.Unmarshal(b, &l); err != nil {
		var mark struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(b, &mark) != nil {
			return line{}, false
		}
		l = line{Type: mark.Type}
	}
	return l, l.Type != ""
}

// final says whether the line is an agent's last word.
func (l *line) final() bool { return l.Type == "result" || l.Type == "turn.completed" }

// usage is what the line reports, if that can be believed.
func (l *line) usage() (u schemas.Usage, ok bool) {
	if !l.final() || l.Usage == nil {
		return u, false
	}
	u = schemas.Usage(*l.Usage)
	ok = u.InputTokens >= 0 && u.OutputTokens >= 0 && u.InputTokens <= maxTokens && u.OutputTokens <= maxTokens
	return u, ok
}

// said is the text in the line.
func (l *line) said() string {
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
