package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// messageLines passes on the lines of a caller that are messages, and answers the others: one wrong line ends neither the session nor what
// runs in it. It takes a batch apart, whose messages are answered one by one.
type messageLines struct {
	in    io.ReadCloser
	lines *bufio.Reader
	out   io.Writer
	rest  []byte // messages to pass on
}

func newMessageLines(in io.ReadCloser, out io.Writer) *messageLines {
	return &messageLines{in: in, lines: bufio.NewReaderSize(in, 64<<10), out: out}
}

// Read implements io.Reader.
func (m *messageLines) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		line, err := m.line()
		if err != nil {
			return 0, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			m.rest = m.check(line)
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (m *messageLines) Close() error { return m.in.Close() }

// line reads a line. One that is longer than a message may be is read to its end and answered; it is empty then. The end of a line that is not
// complete is the end of all.
func (m *messageLines) line() (line []byte, err error) {
	for long := false; ; {
		part, err := m.lines.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxMessage; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && !(errors.Is(err, io.EOF) && len(line) > 0 && !long):
			return nil, err
		case long:
			m.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message has more than %d bytes", maxMessage))
			return nil, nil
		default:
			return line, nil
		}
	}
}

// check returns the messages of a line, and answers what is none.
func (m *messageLines) check(line []byte) (messages []byte) {
	batch := []json.RawMessage{line}
	if !json.Valid(line) {
		m.refuse(jsonrpc.CodeParseError, "the line is not valid JSON: send each message as one line")
		return nil
	}
	if line[0] == '[' {
		if err := json.Unmarshal(line, &batch); err != nil || len(batch) == 0 {
			m.refuse(jsonrpc.CodeInvalidRequest, "the batch is empty")
			return nil
		}
	}
	for _, message := range batch {
		if _, err := jsonrpc.DecodeMessage(message); err != nil {
			m.refuse(jsonrpc.CodeInvalidRequest, err.Error())
			continue
		}
		messages = append(append(messages, message...), '\n')
	}
	return messages
}

// refuse answers a line that is no message, of which the id is not known. What cannot be written is the error of out.
func (m *messageLines) refuse(code int64, text string) {
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": cut(clean(text), maxMessageText)},
	})
	if err == nil {
		_, _ = m.out.Write(append(body, '\n'))
	}
}
