package wire

// encoding/binary would bring package reflect into the supervisor, so the few integers are put together here; the
// compiler makes one load or store of each.

func u32(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func u64(b []byte) uint64 {
	_ = b[7]
	return uint64(u32(b)) | uint64(u32(b[4:]))<<32
}

func appendU32(b []byte, v uint32) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}

func appendU64(b []byte, v uint64) []byte {
	return appendU32(appendU32(b, uint32(v)), uint32(v>>32))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString(b []byte, s string) []byte {
	return append(appendU32(b, uint32(len(s))), s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = appendU32(b, uint32(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// begin starts a frame at the end of b; seal, given the same b's length, writes its size once the payload is there.
func begin(b []byte, t Type) []byte { return append(b, 0, 0, 0, 0, byte(t)) }

func seal(b []byte, start int) []byte {
	n := uint32(len(b) - start - 4)
	b[start], b[start+1], b[start+2], b[start+3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
	return b
}

// parser takes values off a payload. After the first that is not there it is bad, and gives zeros.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) take(n int) []byte {
	if p.bad || n < 0 || n > len(p.b) {
		p.bad = true
		return nil
	}
	v := p.b[:n]
	p.b = p.b[n:]
	return v
}

func (p *parser) u8() byte {
	if v := p.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (p *parser) u32() uint32 {
	if v := p.take(4); v != nil {
		return u32(v)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if v := p.take(8); v != nil {
		return u64(v)
	}
	return 0
}

func (p *parser) i64() int64 { return int64(p.u64()) }

// offset is a number of bytes: never negative.
func (p *parser) offset() int64 {
	v := p.i64()
	if v < 0 {
		p.bad = true
		return 0
	}
	return v
}

// flag is 0 or 1, nothing else, so that each message has one encoding.
func (p *parser) flag() bool {
	v := p.u8()
	if v > 1 {
		p.bad = true
	}
	return v == 1
}

func (p *parser) str() string { return string(p.take(int(p.u32()))) }

// count reads a list's count and refuses one that the rest of the payload cannot hold, at min bytes a member, so that
// the list can be allocated.
func (p *parser) count(min int) int {
	n := int(p.u32())
	if p.bad || n > len(p.b)/min {
		p.bad = true
		return 0
	}
	return n
}

func (p *parser) strs() []string {
	n := p.count(4)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = p.str()
	}
	return list
}

// end is nil when the payload was all there and nothing is left of it.
func (p *parser) end() error {
	if p.bad || len(p.b) != 0 {
		return ErrPayload
	}
	return nil
}
