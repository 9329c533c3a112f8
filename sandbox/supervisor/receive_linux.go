package supervisor

import (
	"os"
	"syscall"
)

// receive gets the listening socket from the host's socket at path. The host makes the listening socket outside, so its name is in
// a folder that the sandbox cannot reach, and the host never connects to a path inside the sandbox. Where no socket
// can be passed, as in gVisor, receive reports that on the connection to path and returns this connection, which is then the only one.
func receive(path string) (listen, connection int, err error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return none, none, os.NewSyscallError("socket", err)
	}
	if err := connect(fd, path); err != nil {
		return none, none, os.NewSyscallError("connect to "+path, err)
	}
	var data [1]byte
	oob := make([]byte, syscall.CmsgSpace(4))
	var n int
	for {
		if _, n, _, _, err = syscall.Recvmsg(fd, data[:], oob, 0); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return none, none, os.NewSyscallError("receive the listening socket", err)
	}
	if listen, err := passed(oob[:n]); err == nil {
		if yes, err := syscall.GetsockoptInt(listen, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err == nil && yes != 0 {
			return listen, none, syscall.Close(fd)
		}
		_ = syscall.Close(listen)
	}
	if _, err := syscall.Write(fd, data[:]); err != nil {
		return none, none, os.NewSyscallError("report on the connection", err)
	}
	return none, fd, nil
}

func connect(fd int, path string) error {
	for {
		err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		if err != syscall.EINTR {
			return err
		}
	}
}

// passed returns the only descriptor of a message.
func passed(oob []byte) (int, error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, err
	}
	if len(messages) != 1 {
		return 0, syscall.EPROTO
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, syscall.EPROTO
	}
	return fds[0], nil
}
