package testkit

import (
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"
)

// A process that was started while a port was chosen held it for a moment: the server on that port could not listen.
func TestReservedPortIsFreeWhileProcessesStart(t *testing.T) {
	stop := make(chan struct{})
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	for range 500 {
		port, release, err := ReservePort(t.Context())
		if err != nil {
			t.Error(err)
			break
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Error(err)
			release()
			break
		}
		_ = l.Close()
		release()
	}
	close(stop)
	starts.Wait()
}
