package supervisor

import (
	"os"
	"syscall"
)

// receive gets the listening socket from whoever listens at path. Since the socket was made outside, its name is in a folder
// that nobody in the sandbox can reach, and nothing that is put at a path in the sandbox is ever connected to. Where no socket
// can be passed on, as in gVisor, the connection to path itself, on which that is told, has to do, and there will be no other.
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
		return none, none, os.NewSyscallError("keep the connection", err)
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

// passed is the one descriptor of a message.
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
