package supervisor

import (
	"os"
	"syscall"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// endOfInput is the character that ends the input of a terminal: Ctrl+D. A terminal has no other end.
const endOfInput = 4

// end ends the input of a terminal. In the middle of a line, the first character only passes the line on.
func (in *input) end() {
	end := []byte{endOfInput}
	switch in.last {
	case 0, '\n', '\r', endOfInput:
	default:
		end = append(end, endOfInput)
	}
	_, _ = in.file.Write(end) // it fails when the process has ended
}

// makeTerminal makes the terminal of a process: its standard input, output and error. Our end of it is both pipes.
func makeTerminal(m *wire.Spawn) (*pipes, error) {
	ours, childs, err := openTerminal()
	if err != nil {
		return nil, err
	}
	p := &pipes{terminal: childs, fds: [3]int{none, ours, none}}
	for i := range p.files {
		p.files[i] = uintptr(childs)
	}
	if err = syscall.SetNonblock(ours, true); err == nil && m.Stdin {
		p.fds[0], err = duplicate(ours)
	}
	p.ours[1] = os.NewFile(uintptr(ours), "terminal")
	if p.fds[0] != none {
		p.ours[0] = os.NewFile(uintptr(p.fds[0]), "terminal")
	}
	if err == nil {
		err = setSize(childs, m.Rows, m.Cols)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// hangUp closes the child's end of a terminal. It was open until now, so that a process whose children still have the terminal can open
// it again. What was written to it can still be read. The trees' mu is held.
func (p *process) hangUp() {
	if p.terminal != none {
		syscall.Close(p.terminal)
		p.terminal = none
	}
}
