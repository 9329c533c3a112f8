package events

import (
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// A worker may publish on every subject of its cell, and a caller names the subject of its answers. So a worker answers on inboxes
// alone: else a caller would write records, leases and streams with the worker's rights.

// inboxPrefix is what inboxes begin with.
const inboxPrefix = "_INBOX"

// maxInbox is the most bytes of an inbox.
const maxInbox = 256

// isInbox reports whether a subject is an inbox of a tenant: below _INBOX or _INBOX_<tenant>, without a wildcard and without a $.
func isInbox(tenant, subject string) bool {
	rest, ok := strings.CutPrefix(subject, inboxPrefix)
	if !ok || len(subject) > maxInbox {
		return false
	}
	if own, ok := strings.CutPrefix(rest, "_"); ok {
		if rest, ok = strings.CutPrefix(own, tenant); !ok || tenant == "" {
			return false
		}
	}
	if len(rest) < 2 || rest[0] != '.' || rest[len(rest)-1] == '.' {
		return false
	}
	for i := range len(rest) {
		switch c := rest[i]; {
		case c <= ' ' || c >= 0x7f || c == '*' || c == '>' || c == '$':
			return false
		case c == '.' && rest[i+1] == '.': // the last byte is no dot
			return false
		}
	}
	return true
}

// The prefixes of a reply subject that nats-server has rewritten. It lets no client send such a reply subject.
const (
	serviceReply = "_R_."  // from another account, to which the server returns the answer
	gatewayReply = "_GR_." // from another cluster: two hashes and the caller's reply subject follow
)

// isReply reports whether the reply subject of a message is an inbox of a tenant.
func isReply(tenant, subject string) bool {
	if strings.HasPrefix(subject, serviceReply) {
		return true
	}
	if rest, ok := strings.CutPrefix(subject, gatewayReply); ok {
		parts := strings.SplitN(rest, ".", 3)
		return len(parts) == 3 && (strings.HasPrefix(parts[2], serviceReply) || isInbox(tenant, parts[2]))
	}
	return isInbox(tenant, subject)
}

// inboxes answers the callers of a worker, on inboxes alone.
type inboxes struct {
	conn      *Conn
	onRefused func(subject, inbox string, total uint64)
	refused   atomic.Uint64
}

// refuse reports a subject that is no inbox. Its caller gets no answer.
func (b *inboxes) refuse(subject, inbox string) {
	b.onRefused(subject, inbox[:min(len(inbox), maxInbox)], b.refused.Add(1))
}

// ofEvents returns the inbox that a command's header names; empty when it is none.
func (b *inboxes) ofEvents(tenant, subject string, header nats.Header) string {
	inbox := header.Get(headerInbox)
	if inbox != "" && !isInbox(tenant, inbox) {
		b.refuse(subject, inbox)
		return ""
	}
	return inbox
}

// ofReply returns the reply subject of a message; empty when it is no inbox.
func (b *inboxes) ofReply(tenant string, m *nats.Msg) string {
	if m.Reply != "" && !isReply(tenant, m.Reply) {
		b.refuse(m.Subject, m.Reply)
		return ""
	}
	return m.Reply
}

// respond answers a message. A caller without an answer asks again.
func (b *inboxes) respond(tenant string, m *nats.Msg, header nats.Header, body []byte) {
	if inbox := b.ofReply(tenant, m); inbox != "" {
		_ = b.conn.nc.PublishMsg(&nats.Msg{Subject: inbox, Header: header, Data: body})
	}
}

// errNoInbox is the error of an answer to a subject that is no inbox.
func errNoInbox(tenant, subject string) error {
	return schemas.Errorf(schemas.CodePermissionDenied, "answer the caller: %q is no inbox: use a subject below _INBOX or _INBOX_%s", subject[:min(len(subject), maxInbox)], tenant)
}
