package service

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// double is a process and the worker that runs it. Its fields may change during a test.
type double struct {
	began time.Time
	mu    sync.Mutex
	log   []string

	healthAt  time.Duration // after its start; negative for never
	answer    time.Duration // how long a probe takes
	stubborn  time.Duration // how long it takes to end when it is killed
	dies      time.Duration // after its start; 0 for never
	launchErr error
	recordErr error
	ended     error // of the session
	processes int
	current   *doubleProcess
	recorded  schemas.Service
}

type doubleProcess struct {
	d              *double
	id             string
	at             time.Time
	started, ended chan struct{}
	end            func()
}

func (p *doubleProcess) ID() string               { return p.id }
func (p *doubleProcess) Started() <-chan struct{} { return p.started }
func (p *doubleProcess) Ended() <-chan struct{}   { return p.ended }
func (p *doubleProcess) Failure() *schemas.Error {
	return schemas.Errorf(schemas.CodeUnavailable, "process %s ended", p.id)
}

func (p *doubleProcess) Kill(grace time.Duration) {
	p.d.note("kill")
	p.d.set(func() { time.AfterFunc(min(p.d.stubborn, grace), p.end) })
}

func (d *double) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, fmt.Sprintf("%s %s", time.Since(d.began), fmt.Sprintf(format, args...)))
}

func (d *double) prepare() (string, launcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.processes++
	id := fmt.Sprint("p", d.processes)
	return id, func(context.Context) (process, error) { return d.launch(id) }
}

func (d *double) launch(id string) (process, error) {
	if d.launchErr != nil {
		d.note("launch fails")
		return nil, d.launchErr
	}
	d.note("launch")
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &doubleProcess{d: d, id: id, at: time.Now(), started: make(chan struct{}), ended: make(chan struct{})}
	p.end = sync.OnceFunc(func() { close(p.ended) })
	d.current = p
	close(p.started)
	if d.dies > 0 {
		time.AfterFunc(d.dies, p.end)
	}
	return p, nil
}

func (d *double) probe(ctx context.Context) error {
	d.mu.Lock()
	answer := time.After(d.answer)
	d.mu.Unlock()
	select {
	case <-answer:
	case <-ctx.Done():
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "no answer")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.healthAt < 0 || time.Since(d.current.at) < d.healthAt {
		return schemas.Errorf(schemas.CodeUnavailable, "not healthy")
	}
	return nil
}

func (d *double) over() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

func (d *double) record(_ context.Context, s *schemas.Service) error {
	d.mu.Lock()
	err, last := d.recordErr, d.recorded
	if err == nil {
		d.recorded = *s
	}
	d.mu.Unlock()
	if err == nil && (s.State != last.State || s.Process() != last.Process()) { // else the counts alone have changed
		d.note("%s", s.State)
	}
	return err
}

// wait lets this time pass.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// set changes a double.
func (d *double) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// endProcess ends the process that runs.
func (d *double) endProcess() {
	d.mu.Lock()
	end := d.current.end
	d.mu.Unlock()
	end()
}

// supervise runs a supervisor of d for a while, stops it, and returns what was done and when.
func supervise(t *testing.T, d *double, during func(sv *supervisor)) string {
	t.Helper()
	var log string
	synctest.Test(t, func(t *testing.T) {
		d.began = time.Now()
		sv := newSupervisor(d, schemas.Service{Spec: schemas.ServiceSpec{Health: &schemas.HealthCheck{Port: 1}}}, nil)
		go sv.run(t.Context(), occurStart)
		during(sv)
		sv.stop()
		<-sv.done
		synctest.Wait()
		log = strings.Join(d.log, "\n")
	})
	return log
}

func wantTimeline(t *testing.T, got string, want ...string) {
	t.Helper()
	testkit.Equal(t, "timeline", got, strings.Join(want, "\n"))
}

// Processes 4: the first probe comes after 150 ms, then one each 500 ms; then it is running until it is stopped.
func TestServiceBecomesHealthy(t *testing.T) {
	d := &double{healthAt: time.Second}
	log := supervise(t, d, func(sv *supervisor) {
		wait(time.Minute)
		testkit.Equal(t, "time to healthy", sv.current().HealthyMS, 1150.0)
	})
	wantTimeline(t, log, "0s starting", "0s launch", "1.15s running", "1m0s kill", "1m0s stopping", "1m0s stopped")
}

// Processes 4: a service that never becomes healthy is started three times, with 1 s and 2 s between, and then it has failed.
func TestServiceIsNeverHealthy(t *testing.T) {
	d := &double{healthAt: -1}
	log := supervise(t, d, func(sv *supervisor) {
		<-sv.done
		testkit.Equal(t, "reason", sv.current().Error.Message, "not healthy")
	})
	wantTimeline(t, log, "0s starting", "0s launch", "30s kill", "31s starting", "31s launch", "1m1s kill", "1m3s starting", "1m3s launch", "1m33s kill", "1m33s failed")
}

// Processes 4: one that dies at once, and one that cannot be started, have three attempts too.
func TestServiceThatDoesNotStart(t *testing.T) {
	log := supervise(t, &double{healthAt: -1, dies: time.Second}, func(sv *supervisor) { <-sv.done })
	wantTimeline(t, log, "0s starting", "0s launch", "2s starting", "2s launch", "5s starting", "5s launch", "6s failed")
	log = supervise(t, &double{launchErr: schemas.Errorf(schemas.CodeUnavailable, "no room")}, func(sv *supervisor) { <-sv.done })
	wantTimeline(t, log, "0s starting", "0s launch fails", "1s starting", "1s launch fails", "3s starting", "3s launch fails", "3s failed")
}

// Processes 4: one that dies is unhealthy, and is started again after 1 s.
func TestServiceDies(t *testing.T) {
	d := &double{}
	log := supervise(t, d, func(*supervisor) {
		wait(time.Minute)
		d.endProcess()
		wait(time.Minute)
	})
	wantTimeline(t, log, "0s starting", "0s launch", "150ms running", "1m0s unhealthy", "1m1s starting", "1m1s launch", "1m1.15s running",
		"2m0s kill", "2m0s stopping", "2m0s stopped")
}

// Processes 4: one that does not answer is unhealthy after three probes of 2 s, 10 s apart, and is killed after 5 s of grace.
func TestServiceFreezes(t *testing.T) {
	d := &double{}
	log := supervise(t, d, func(*supervisor) {
		wait(15 * time.Second)
		d.set(func() { d.answer, d.stubborn = time.Hour, time.Hour })
		wait(32 * time.Second)
		d.set(func() { d.answer = 0 })
		wait(13 * time.Second)
	})
	wantTimeline(t, log, "0s starting", "0s launch", "150ms running", "46.15s kill", "46.15s unhealthy", "52.15s starting", "52.15s launch",
		"52.3s running", "1m0s kill", "1m0s stopping", "1m5s stopped")
}

// Processes 4: one that is slow and answers within 2 s stays running.
func TestServiceIsSlow(t *testing.T) {
	d := &double{}
	log := supervise(t, d, func(*supervisor) {
		wait(5 * time.Second)
		d.set(func() { d.answer = 1900 * time.Millisecond })
		wait(time.Hour)
	})
	wantTimeline(t, log, "0s starting", "0s launch", "150ms running", "1h0m5s kill", "1h0m5s stopping", "1h0m5s stopped")
}

// Processes 4: restarts in a row wait for 1, 2 and 4 s, and the third failure is final. A service that ran for a while begins anew.
func TestServiceThatDiesAgainAndAgain(t *testing.T) {
	d := &double{}
	counts := func() (c [2]int) {
		d.set(func() { c = [2]int{d.recorded.Starts, d.recorded.RestartAttempts} })
		return c
	}
	log := supervise(t, d, func(sv *supervisor) {
		wait(time.Second)
		testkit.Equal(t, "starts and restarts after 1 s", counts(), [2]int{1, 0})
		wait(10 * time.Second)
		testkit.Equal(t, "starts and restarts after 11 s", counts(), [2]int{0, 0})
		d.set(func() { d.dies = time.Second })
		d.endProcess()
		wait(1500 * time.Millisecond)
		testkit.Equal(t, "starts and restarts after a restart", counts(), [2]int{1, 1})
		<-sv.done
		testkit.Equal(t, "starts and restarts at the end", counts(), [2]int{3, 3})
	})
	wantTimeline(t, log, "0s starting", "0s launch", "150ms running",
		"11s unhealthy", "12s starting", "12s launch", "12.15s running",
		"13s unhealthy", "15s starting", "15s launch", "15.15s running",
		"16s unhealthy", "20s starting", "20s launch", "20.15s running", "21s failed")
}

// Processes 4: a stop ends the wait before a restart, and the end of the session ends the service.
func TestServiceIsStopped(t *testing.T) {
	d := &double{}
	log := supervise(t, d, func(*supervisor) {
		wait(time.Second)
		d.endProcess()
		wait(time.Second / 2)
	})
	wantTimeline(t, log, "0s starting", "0s launch", "150ms running", "1s unhealthy", "1.5s stopped")
	d = &double{}
	log = supervise(t, d, func(sv *supervisor) {
		wait(time.Second)
		d.set(func() { d.ended = schemas.Errorf(schemas.CodeSessionExpired, "the session has ended") })
		d.endProcess()
		<-sv.done
		testkit.Equal(t, "why", sv.current().Error.Code, schemas.CodeSessionExpired)
	})
	wantTimeline(t, log, "0s starting", "0s launch", "150ms running", "1s stopped")
}

// Processes 4: a service without a check runs when its process does.
func TestServiceWithoutCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &double{began: time.Now()}
		sv := newSupervisor(d, schemas.Service{}, nil)
		go sv.run(t.Context(), occurStart)
		wait(time.Hour)
		sv.stop()
		<-sv.done
		wantTimeline(t, strings.Join(d.log, "\n"), "0s starting", "0s launch", "150ms running", "1h0m0s kill", "1h0m0s stopping", "1h0m0s stopped")
	})
}

// Processes 4: the next incarnation goes on with what runs, and starts what has ended meanwhile.
func TestServiceIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &double{began: time.Now()}
		p, err := d.launch("p0")
		testkit.Must(t, err)
		on := schemas.Service{State: schemas.ServiceRunning, Starts: 1, Spec: schemas.ServiceSpec{Health: &schemas.HealthCheck{Port: 1}}}
		d.recorded = on
		sv := newSupervisor(d, on, p)
		ctx, leave := context.WithCancel(t.Context())
		go sv.run(ctx, occurAdopt)
		wait(30 * time.Second)
		leave()
		<-sv.done
		wantTimeline(t, strings.Join(d.log, "\n"), "0s launch")
		d.endProcess()
		sv = newSupervisor(d, on, nil)
		go sv.run(t.Context(), occurEnd)
		wait(10 * time.Second)
		sv.stop()
		<-sv.done
		wantTimeline(t, strings.Join(d.log[1:], "\n"), "30s unhealthy", "31s starting", "31s launch", "31.15s running", "40s kill", "40s stopping", "40s stopped")
	})
}

// Processes 4: a process is started once it is on record, and not at all when the service is stopped before.
func TestServiceThatIsNotOnRecordDoesNotStart(t *testing.T) {
	d := &double{recordErr: schemas.Errorf(schemas.CodeUnavailable, "NATS is away")}
	log := supervise(t, d, func(sv *supervisor) {
		wait(2500 * time.Millisecond)
		sv.stop()
		wait(time.Second)
		d.set(func() { d.recordErr = nil })
	})
	wantTimeline(t, log, "4.5s stopped")
}

// Processes 4: a record that cannot be stored is stored later; one that is another worker's ends the supervision.
func TestServiceRecordFails(t *testing.T) {
	d := &double{recordErr: schemas.Errorf(schemas.CodeUnavailable, "NATS is away")}
	log := supervise(t, d, func(sv *supervisor) {
		wait(5 * time.Second)
		d.set(func() { d.recordErr = nil })
		wait(10 * time.Second)
		d.set(func() { d.recordErr = schemas.Errorf(schemas.CodeUnavailable, "NATS is away") })
		sv.stop()
		wait(4500 * time.Millisecond)
		d.set(func() { d.recordErr = nil })
	})
	wantTimeline(t, log, "6s starting", "6s launch", "6.15s running", "15s kill", "20s stopped")
	d = &double{}
	log = supervise(t, d, func(sv *supervisor) {
		wait(time.Second)
		d.set(func() { d.recordErr = schemas.Errorf(schemas.CodeLost, "the thread is another worker's") })
		d.endProcess()
		<-sv.done
	})
	wantTimeline(t, log, "0s starting", "0s launch", "150ms running")
}
