package main

import (
	"bufio"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reachPatience is how long a packet into nowhere may go without an answer.
const reachPatience = 300 * time.Millisecond

// reach tries the addresses in TARGETS, such as tcp!10.0.0.1:80. What is sent over UDP may seem to have gone: the host knows.
func reach() {
	for _, target := range strings.Fields(os.Getenv("TARGETS")) {
		network, address, _ := strings.Cut(target, "!")
		conn, err := net.DialTimeout(network, address, reachPatience)
		if err == nil {
			_, err = conn.Write([]byte("from inside"))
			_ = conn.Close()
		}
		say(target, err)
	}
}

// ping sends an echo request to the addresses in TARGETS by the socket that needs no right.
func ping() {
	for _, target := range strings.Fields(os.Getenv("TARGETS")) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		if err == nil {
			to := &unix.SockaddrInet4{}
			copy(to.Addr[:], net.ParseIP(target).To4())
			err = unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0, to)
			_ = unix.Close(fd)
		}
		say("ping "+target, err)
	}
}

// abstract connects to the sockets named in TARGETS, which have no path.
func abstract() {
	for _, name := range strings.Fields(os.Getenv("TARGETS")) {
		for kind, network := range map[int]string{unix.SOCK_STREAM: "stream", unix.SOCK_DGRAM: "datagram", unix.SOCK_SEQPACKET: "seqpacket"} {
			fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
				_ = unix.Close(fd)
			}
			say(network+" "+name, err)
		}
	}
}

// route changes the network as an administrator could: the loopback's address, its state, a new interface.
func route() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		say("socket", err)
		return
	}
	var request [40]byte
	copy(request[:], "lo")
	for name, number := range map[string]uintptr{"SIOCSIFFLAGS": unix.SIOCSIFFLAGS, "SIOCSIFADDR": unix.SIOCSIFADDR, "SIOCADDRT": unix.SIOCADDRT, "SIOCBRADDBR": unix.SIOCBRADDBR} {
		try(name, unix.SYS_IOCTL, uintptr(fd), number, str(string(request[:])))
	}
	_ = unix.Close(fd)
}

// floodRounds is how often every socket is knocked at.
const floodRounds = 200

// flood connects again and again to whatever could be the supervisor's socket: every name the kernel tells of, and those in
// TARGETS. The connections that come about stay open.
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
		say("connect "+name, last)
	}
	say("looked", unix.EPERM) // so that there is a line where there are no names
}
