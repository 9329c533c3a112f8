package main

import (
	"bufio"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reachTimeout bounds the wait for an address that does not answer.
const reachTimeout = 300 * time.Millisecond

// reach connects to the addresses in TARGETS, such as tcp!10.0.0.1:80, and sends a message. A send over UDP may succeed here without
// arriving: the test checks that on the host.
func reach() {
	for _, target := range strings.Fields(os.Getenv("TARGETS")) {
		network, address, _ := strings.Cut(target, "!")
		conn, err := net.DialTimeout(network, address, reachTimeout)
		if err == nil {
			_, err = conn.Write([]byte("from inside"))
			_ = conn.Close()
		}
		report(target, err)
	}
}

// ping sends an echo request to the addresses in TARGETS, from a kind of socket that needs no capability.
func ping() {
	for _, target := range strings.Fields(os.Getenv("TARGETS")) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		if err == nil {
			to := &unix.SockaddrInet4{}
			copy(to.Addr[:], net.ParseIP(target).To4())
			err = unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0, to)
			_ = unix.Close(fd)
		}
		report("ping "+target, err)
	}
}

// abstract connects to the abstract sockets named in TARGETS.
func abstract() {
	for _, name := range strings.Fields(os.Getenv("TARGETS")) {
		for kind, network := range map[int]string{unix.SOCK_STREAM: "stream", unix.SOCK_DGRAM: "datagram", unix.SOCK_SEQPACKET: "seqpacket"} {
			fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
				_ = unix.Close(fd)
			}
			report(network+" "+name, err)
		}
	}
}

// route attempts changes of the network: the loopback's address and state, a route, a new interface.
func route() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		report("socket", err)
		return
	}
	var request [40]byte
	copy(request[:], "lo")
	for name, number := range map[string]uintptr{"SIOCSIFFLAGS": unix.SIOCSIFFLAGS, "SIOCSIFADDR": unix.SIOCSIFADDR, "SIOCADDRT": unix.SIOCADDRT, "SIOCBRADDBR": unix.SIOCBRADDBR} {
		tryCall(name, unix.SYS_IOCTL, uintptr(fd), number, cString(string(request[:])))
	}
	_ = unix.Close(fd)
}

// floodRounds is the number of connections to each socket.
const floodRounds = 200

// flood connects repeatedly to every socket that could be the supervisor's: all names in /proc/net/unix, and those in TARGETS. The
// connections stay open.
func flood() {
	names := strings.Fields(os.Getenv("TARGETS"))
	if f, err := os.Open("/proc/net/unix"); err == nil {
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if fields := strings.Fields(lines.Text()); len(fields) > 7 {
				names = append(names, fields[7])
			}
		}
	}
	for _, name := range names {
		var last error
		for range floodRounds {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				last = err
				break
			}
			if last = unix.Connect(fd, &unix.SockaddrUnix{Name: name}); last != nil {
				_ = unix.Close(fd)
				break
			}
			_, _ = unix.Write(fd, make([]byte, 64<<10))
		}
		report("connect "+name, last)
	}
	report("checked", unix.EPERM) // the suite expects a line even without names
}
