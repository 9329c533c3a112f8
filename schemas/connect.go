package schemas

// ConnectRequest connects the sender to a TCP port in the sandbox of a thread. It is sent on ctl.<thread>._.connect. After the reply the
// bytes are messages on tun.<thread>.<connection>.up and .down, to which the sender must be subscribed before.
type ConnectRequest struct {
	// Connection is a new, random id of the connection; see [ValidID].
	Connection string `json:"connection"`
	// Port is a TCP port on the loopback interface of the sandbox.
	Port int64 `json:"port"`
}

// ConnectReply is the reply to a [ConnectRequest].
type ConnectReply struct {
	// Error is why there is no connection.
	Error *Error `json:"error,omitempty"`
}

// DecodeConnectRequest decodes and validates a request to connect, as strictly as [DecodeCommand] and with the same errors.
func DecodeConnectRequest(body []byte) (*ConnectRequest, error) {
	return decodeRequest("connect request", body, (*ConnectRequest).Validate)
}

// Validate checks every field. The error is invalid_argument with the detail "path".
func (r *ConnectRequest) Validate() error {
	if err := CheckID("connection", r.Connection); err != nil {
		return err
	}
	if r.Port < 1 || r.Port > 65535 {
		return invalid("port", "%d is not a port", r.Port)
	}
	return nil
}
