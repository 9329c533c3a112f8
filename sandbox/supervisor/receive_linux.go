package supervisor

import (
	"os"
	"syscall"
)

// receive gets the listening socket from whoever listens at path. Since the socket was made outside, its name is in a folder
// that nobody in the sandbox can reach, and nothing that is put at a path in the sandbox is ever connected to.
func receive(path string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer syscall.Close(fd)
	if err := connect(fd, path); err != nil {
		return 0, os.NewSyscallError("connect to "+path, err)
	}
	var data [1]byte
	oob := make([]byte, syscall.CmsgSpace(4))
	for {
		_, n, _, _, err := syscall.Recvmsg(fd, data[:], oob, 0)
		if err == syscall.EINTR {
			continue
		}
		listen := 0
		if err == nil {
			listen, err = passed(oob[:n])
		}
		if err != nil {
			return 0, os.NewSyscallError("receive the listening socket", err)
		}
		return listen, nil
	}
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
