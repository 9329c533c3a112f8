package schemas

// DecodeStopRequest reads and validates a stop request as strictly as [DecodeCommand] reads a command. The errors are the same.
func DecodeStopRequest(body []byte) (*StopRequest, error) {
	var r StopRequest
	if err := decodeControl("stop request", body, &r); err != nil {
		return nil, err
	}
	if err := checkSession(r.Session); err != nil {
		return nil, err
	}
	if r.GraceMS != nil {
		if err := checkMillis("grace_ms", *r.GraceMS); err != nil {
			return nil, err
		}
	}
	return &r, nil
}

// DecodeRenewRequest is DecodeStopRequest for a renew request.
func DecodeRenewRequest(body []byte) (*RenewRequest, error) {
	var r RenewRequest
	if err := decodeControl("renew request", body, &r); err != nil {
		return nil, err
	}
	if err := checkSession(r.Session); err != nil {
		return nil, err
	}
	if err := checkMillis("idle_timeout_ms", r.IdleTimeoutMS); err != nil {
		return nil, err
	}
	return &r, nil
}

// DecodeStartRequest is DecodeStopRequest for a start request.
func DecodeStartRequest(body []byte) (*StartRequest, error) {
	var r StartRequest
	if err := decodeControl("start request", body, &r); err != nil {
		return nil, err
	}
	return &r, checkSession(r.Session)
}

func checkSession(id string) error {
	if id == "" {
		return nil
	}
	return CheckID("session", id)
}
