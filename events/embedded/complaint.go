package embedded

import (
	"fmt"
	"strings"
	"sync"
)

// complaint keeps the server's last error, for the message of a start that failed. It is the server's logger; all else that it
// says goes nowhere, since a command line program's standard error belongs to the command.
type complaint struct {
	mu     sync.Mutex
	text   string
	faulty bool
}

func (c *complaint) keep(format string, v []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = fmt.Sprintf(format, v...)
	// A stream that once could not be written answers nobody any more, and the server says so nowhere else.
	if strings.Contains(c.text, "write error") {
		c.faulty = true
	}
}

// fault says whether a stream could not be written since the last repair.
func (c *complaint) fault() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faulty
}

// repaired ends fault.
func (c *complaint) repaired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faulty = false
}

// String is the last error, or words that say there was none.
func (c *complaint) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.text == "" {
		return "it gave no reason within 30 s"
	}
	return c.text
}

// Errorf and Fatalf keep what is said.
func (c *complaint) Errorf(format string, v ...any) { c.keep(format, v) }

// Fatalf keeps what is said.
func (c *complaint) Fatalf(format string, v ...any) { c.keep(format, v) }

// Noticef says nothing.
func (*complaint) Noticef(string, ...any) {}

// Warnf says nothing.
func (*complaint) Warnf(string, ...any) {}

// Debugf says nothing.
func (*complaint) Debugf(string, ...any) {}

// Tracef says nothing.
func (*complaint) Tracef(string, ...any) {}
