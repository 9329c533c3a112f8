package supervisor

import "runtime"

// spareThreads is how many threads a supervisor in a container makes before anything runs there. Its limit of processes counts
// the supervisor's threads too, and the Go runtime gives up when it needs one and cannot have it. Every process keeps at most
// three busy, and none is started any more once the limit is reached.
const spareThreads = 16

// reserve makes threads, which the runtime then keeps idle until it needs them.
func reserve(n int) {
	up, release := make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			// A locked goroutine has a thread for itself, while it waits too; unlocked before its end, it leaves it behind.
			runtime.LockOSThread()
			up <- struct{}{}
			<-release
			runtime.UnlockOSThread()
		}()
	}
	for range n {
		<-up
	}
	close(release)
}
