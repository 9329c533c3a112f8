package wire

// ConnectVersion is the version from which on supervisors make connections: Connect and Connected.
const ConnectVersion = 5

// Network is the kind of an address in a sandbox.
type Network byte

// The networks.
const (
	NetworkTCP4 Network = iota // 127.0.0.1
	NetworkTCP6                // ::1
	NetworkUnix
)

// Connect asks for a connection to a server in the sandbox. Connected answers it, with the same Seq.
type Connect struct {
	Seq     uint32
	Network Network
	// Port is that of a TCP server, Path that of a unix socket.
	Port uint32
	Path string
}

func (*Connect) kind() Type { return TypeConnect }

func (m *Connect) fields(c *codec) {
	c.u32(&m.Seq)
	enum(c, &m.Network, NetworkTCP4, NetworkUnix)
	c.short(&m.Port)
	c.str(&m.Path)
}

// ConnectResult is the answer in Connected.
type ConnectResult byte

// The results.
const (
	ConnectBegun   ConnectResult = iota // the socket comes with the frame's first byte (SCM_RIGHTS); it may still be connecting
	ConnectRefused                      // nothing listens there
	ConnectFailed                       // any other fault
)

// Connected answers Connect.
type Connected struct {
	Seq    uint32
	Result ConnectResult
	// Detail is the system's error text, for people.
	Detail string
}

func (*Connected) kind() Type { return TypeConnected }

func (m *Connected) fields(c *codec) {
	c.u32(&m.Seq)
	enum(c, &m.Result, ConnectBegun, ConnectFailed)
	c.str(&m.Detail)
}
