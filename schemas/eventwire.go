package schemas

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// fields are an event's fields in the order of their wire form, data apart. Events are most of what is written and read for a
// command: reflection over them would cost more than all else that is done with them.
func (e *Event) fields() [10]eventField {
	return [...]eventField{
		{`{"specversion":`, &e.SpecVersion, false}, {`,"id":`, &e.ID, false}, {`,"source":`, &e.Source, false},
		{`,"type":`, (*string)(&e.Type), false}, {`,"subject":`, &e.Subject, false}, {`,"time":`, nil, false},
		{`,"tenant":`, &e.Tenant, false}, {`,"thread":`, &e.Thread, false},
		{`,"session":`, &e.Session, true}, {`,"process":`, &e.Process, true},
	}
}

type eventField struct {
	name      string
	text      *string // nil for the time
	omitempty bool
}

const (
	seqField  = `,"seq":`
	dataField = `,"data":`
)

// append is the wire form, byte for byte that of encoding/json. ok is false for what only that can say how to write.
func (e *Event) append(b []byte) (_ []byte, ok bool) {
	for _, f := range e.fields() {
		switch {
		case f.text == nil:
			at, err := e.Time.AppendText(append(append(b, f.name...), '"'))
			if err != nil {
				return nil, false
			}
			b = append(at, '"')
		case !plain(*f.text):
			return nil, false
		case *f.text != "" || !f.omitempty:
			b = append(append(append(append(b, f.name...), '"'), *f.text...), '"')
		}
	}
	if e.Seq != 0 {
		b = strconv.AppendUint(append(b, seqField...), e.Seq, 10)
	}
	if len(e.Data) > 0 {
		b = append(append(b, dataField...), e.Data...)
	}
	return append(b, '}'), true
}

// parseEvent reads what append writes. ok is false for anything else, such as another order of the fields, which is no less an event.
func parseEvent(body []byte) (e *Event, ok bool) {
	e = new(Event)
	rest := body
	for _, f := range e.fields() {
		after, there := bytes.CutPrefix(rest, []byte(f.name))
		if !there && f.omitempty {
			continue
		}
		if !there || len(after) == 0 || after[0] != '"' {
			return nil, false
		}
		n := bytes.IndexByte(after[1:], '"')
		if n < 0 {
			return nil, false
		}
		text := string(after[1 : n+1])
		if !plain(text) || f.omitempty && text == "" {
			return nil, false
		}
		rest = after[n+2:]
		if f.text != nil {
			*f.text = text
		} else if e.Time.UnmarshalText([]byte(text)) != nil {
			return nil, false
		}
	}
	data, there := bytes.CutPrefix(rest, []byte(dataField))
	if !there {
		return e, string(rest) == "}"
	}
	data, there = bytes.CutSuffix(data, []byte("}"))
	// An object has no blanks around it, and is kept as it stands.
	if !there || len(data) < 2 || data[0] != '{' || data[len(data)-1] != '}' || !json.Valid(data) {
		return nil, false
	}
	e.Data = bytes.Clone(data)
	return e, true
}

// plain says whether a string stands in JSON as it is, also in that of encoding/json, which is careful with HTML.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
