package processor

import (
	"encoding/json"

	"github.com/sluice-dev/sluice/schemas"
)

// mark is what a sandbox carries to tell, after its worker's death, whose it is.
type mark struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Epoch   uint64 `json:"epoch"`
}

func (t *thread) mark() mark {
	return mark{Tenant: t.tenant, Session: t.session.ID, Epoch: t.session.Epoch}
}

// String is the mark as a sandbox carries it.
func (m mark) String() string {
	body, _ := json.Marshal(m) // it holds strings and a number alone
	return string(body)
}

func parseMark(s string) (m mark, ok bool) {
	return m, json.Unmarshal([]byte(s), &m) == nil && schemas.ValidID(m.Tenant)
}

// fits says whether nobody has owned the session since the sandbox was marked. A mark may be one ahead: it is written before the
// session is.
func (m mark) fits(s *schemas.Session, worker string) bool {
	return s.ID == m.Session && s.Owner == worker && (s.Epoch == m.Epoch || s.Epoch+1 == m.Epoch)
}
