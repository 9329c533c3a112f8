package dashboard

import (
	"strings"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	messageRows = 50
	// messageBytes is how much of a message a page shows, in bytes.
	messageBytes = 32 << 10
)

// messagesView is a conversation.
type messagesView struct {
	threadHead
	Messages []messageRow
	Earlier  int // messages that are not shown
	More     *link
	Agent    bool // the template has one, or it is not known
}

type messageRow struct {
	*schemas.Message
	Cut bool // the page does not show all of it
	Bad bool // the agent failed
}

func messagesPage(v *visit) (*page, error) {
	limit, err := rows(v, messageRows)
	if err != nil {
		return nil, err
	}
	m := &messagesView{Agent: true}
	if m.threadHead, err = head(v, "messages"); err != nil {
		return nil, err
	}
	if err := v.client.Messages(v.ctx(), client.MessageQuery{Thread: m.Thread}, func(msg *schemas.Message) error {
		row := messageRow{Message: msg, Cut: msg.Truncated, Bad: msg.Role == schemas.RoleAgent && (msg.Reason != schemas.ReasonExited || msg.ExitCode != 0)}
		if len(msg.Text) > messageBytes {
			msg.Text, row.Cut = strings.ToValidUTF8(strings.Clone(msg.Text[:messageBytes]), ""), true
		}
		if m.Messages = append(m.Messages, row); len(m.Messages) > limit {
			m.Messages[0] = messageRow{}
			m.Messages = m.Messages[1:]
			m.Earlier++
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if m.Earlier > 0 {
		m.More = moreLink(threadURL(m.Thread)+"/messages", limit)
	}
	if m.Session != nil && m.Session.Template != "" {
		t, err := v.client.Template(v.ctx(), m.Session.Template)
		m.Agent = err != nil || t.Agent != nil
	}
	processes, err := v.client.Processes(v.ctx(), client.ProcessQuery{Thread: m.Thread, All: true, Limit: 1})
	if err != nil {
		return nil, err
	}
	return &page{
		name: "messages", Title: m.Thread + ": messages", Section: "overview", Live: liveURL(m.Thread, processes), Data: m,
	}, nil
}
