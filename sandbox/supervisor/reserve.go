package supervisor

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads a supervisor makes before anything runs in its jail or container. The limit of processes there
// counts the supervisor's threads too, and the Go runtime gives up when it needs one and cannot have it. Every process keeps at
// most three busy, and none is started any more once the limit is reached.
const spareThreads = 8

// reserve makes threads, which the runtime then keeps idle until it needs them, and tells when they are there: meanwhile the
// host can be answered.
func reserve(n int) (done <-chan struct{}) {
	made := make(chan struct{})
	go func() {
		defer close(made)
		var up sync.WaitGroup
		up.Add(n)
		release := make(chan struct{})
		for range n {
			go func() {
				// A locked goroutine has a thread for itself, while it waits too; unlocked before its end, it leaves it behind.
				runtime.LockOSThread()
				up.Done()
				<-release
				runtime.UnlockOSThread()
			}()
		}
		up.Wait()
		close(release)
	}()
	return made
}
