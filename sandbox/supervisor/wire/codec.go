package wire

// Message is a frame's content: any type but Output.
type Message interface {
	kind() Type
	// fields passes each field to the codec, in the order of the wire.
	fields(c *codec)
}

// Append adds m's whole frame to b.
func Append(b []byte, m Message) []byte {
	start := len(b)
	c := codec{mode: encoding, b: begin(b, m.kind())}
	m.fields(&c)
	seal(c.b[start:], len(c.b)-start)
	return c.b
}

// Size returns how many bytes Append adds.
func Size(m Message) int {
	c := codec{mode: measuring, size: headSize}
	m.fields(&c)
	return c.size
}

// Decode reads a payload into m, which must be zero. The Data of a Stdin is part of b. Errors: ErrPayload.
func Decode(b []byte, m Message) error {
	c := codec{mode: decoding, b: b}
	m.fields(&c)
	return c.err()
}

// Parse reads a payload as the message of type t. Errors: ErrPayload; ErrOrder for Output and for an unknown type.
func Parse(t Type, b []byte) (Message, error) {
	if int(t) >= len(newMessage) || newMessage[t] == nil {
		return nil, ErrOrder
	}
	m := newMessage[t]()
	return m, Decode(b, m)
}

// begin starts a frame at the end of b. seal writes the size of a frame of n bytes, which begins at b[0].
func begin(b []byte, t Type) []byte { return append(b, 0, 0, 0, 0, byte(t)) }

func seal(b []byte, n int) {
	n -= 4
	b[0], b[1], b[2], b[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
}

// The compiler turns each of put64, get32 and get64 into one store or load.
func put64(b []byte, v uint64) {
	_ = b[7]
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	b[4], b[5], b[6], b[7] = byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
}

func get32(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func get64(b []byte) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

type mode byte

const (
	measuring mode = iota
	encoding
	decoding
)

// codec measures, encodes or decodes the fields of one message. It writes to a field only when it decodes. encoding/binary would
// bring package reflect into the supervisor.
type codec struct {
	mode   mode
	b      []byte // encoding: the frame so far; decoding: the rest of the payload
	size   int    // measuring: the bytes so far
	bad    bool   // decoding: the payload is malformed
	strict bool   // decoding: inside a list, where no field may be missing
}

func (c *codec) err() error {
	if c.bad {
		return ErrPayload
	}
	return nil
}

// take returns the next n bytes of the payload, or nil and a bad codec.
func (c *codec) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

// number is an integer of n bytes: 1, 4 or 8. It returns v, or the decoded value: 0 for a field that an older sender did not have.
func (c *codec) number(v uint64, n int) uint64 {
	switch c.mode {
	case measuring:
		c.size += n
	case encoding:
		switch n {
		case 1:
			c.b = append(c.b, byte(v))
		case 4:
			c.b = append(c.b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
		default:
			c.b = append(c.b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
		}
	case decoding:
		v = 0
		if len(c.b) == 0 && !c.strict {
			break
		}
		switch b := c.take(n); len(b) {
		case 1:
			v = uint64(b[0])
		case 4:
			v = uint64(get32(b))
		case 8:
			v = get64(b)
		}
	}
	return v
}

func (c *codec) u32(p *uint32) {
	if v := c.number(uint64(*p), 4); c.mode == decoding {
		*p = uint32(v)
	}
}

func (c *codec) u64(p *uint64) {
	if v := c.number(*p, 8); c.mode == decoding {
		*p = v
	}
}

func (c *codec) i64(p *int64) {
	if v := c.number(uint64(*p), 8); c.mode == decoding {
		*p = int64(v)
	}
}

// positive are numbers of bytes or nanoseconds. They are never negative.
func (c *codec) positive(fields ...*int64) {
	for _, p := range fields {
		if c.i64(p); c.mode == decoding && *p < 0 {
			c.bad = true
		}
	}
}

// short are numbers of at most 16 bits.
func (c *codec) short(fields ...*uint32) {
	for _, p := range fields {
		if c.u32(p); c.mode == decoding && *p > 1<<16-1 {
			c.bad = true
		}
	}
}

// enum is one byte from first to last.
func enum[T ~byte](c *codec, p *T, first, last T) {
	v := c.number(uint64(*p), 1)
	if c.mode != decoding {
		return
	}
	if *p = T(v); *p < first || *p > last {
		c.bad = true
	}
}

// flag is 0 or 1 and nothing else, so that each message has one encoding.
func (c *codec) flag(p *bool) {
	var v byte
	if *p {
		v = 1
	}
	if enum(c, &v, 0, 1); c.mode == decoding {
		*p = v == 1
	}
}

func (c *codec) str(p *string) {
	n := int(c.number(uint64(len(*p)), 4))
	switch c.mode {
	case measuring:
		c.size += n
	case encoding:
		c.b = append(c.b, *p...)
	case decoding:
		*p = string(c.take(n))
	}
}

// rest is the data up to the end of the payload, at most this many bytes.
func (c *codec) rest(p *[]byte, most int) {
	switch c.mode {
	case measuring:
		c.size += len(*p)
	case encoding:
		c.b = append(c.b, *p...)
	case decoding:
		if *p = c.take(len(c.b)); len(*p) > most {
			c.bad = true
		}
	}
}

// list is a list whose members take at least this many bytes each. The decoder checks the count before it allocates.
func list[T any](c *codec, p *[]T, least int, member func(c *codec, p *T)) {
	n := int(c.number(uint64(len(*p)), 4))
	if c.mode == decoding {
		if *p = nil; c.bad || n > len(c.b)/least {
			c.bad = true
			return
		}
		if n > 0 {
			*p = make([]T, n)
		}
	}
	c.strict = true
	for i := range *p {
		member(c, &(*p)[i])
	}
	c.strict = false
}

func (c *codec) strs(p *[]string) { list(c, p, 4, (*codec).str) }
