package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/internal/history"
)

// fault is one row of the schedule.
type fault struct {
	at     time.Duration
	kind   string
	target uint64        // chooses among the targets that there are
	lasts  time.Duration // until it is lifted
}

// attacks are the kinds of faults. Each returns when the fault is lifted, and reports whether there was a target.
func attacks() map[string]func(context.Context, *cell, *clients, fault) bool {
	return map[string]func(context.Context, *cell, *clients, fault) bool{
		"worker-kill":       workerFault(syscall.SIGKILL),
		"worker-stop":       workerFault(syscall.SIGTERM),
		"worker-freeze":     workerFault(syscall.SIGSTOP),
		"server-kill":       serverFault(syscall.SIGKILL),
		"server-freeze":     serverFault(syscall.SIGSTOP),
		"outage-kill":       outage(syscall.SIGKILL),
		"outage-freeze":     outage(syscall.SIGSTOP),
		"supervisor-kill":   sandboxFault(syscall.SIGKILL, false),
		"supervisor-freeze": sandboxFault(syscall.SIGSTOP, false),
		"zygote-kill":       sandboxFault(syscall.SIGKILL, true),
		"zygote-freeze":     sandboxFault(syscall.SIGSTOP, true),
		"stepdown":          stepDown,
		"full-cmd":          full("CMD"),
		"full-evt":          full("EVT"),
		"full-log":          full("LOG"),
		"flood":             flood,
	}
}

// faultKinds lists the kinds of faults.
func faultKinds() (kinds []string) {
	for k := range attacks() {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

// chooseKinds reads the flag --faults.
func chooseKinds(list string, servers int) (kinds []string, err error) {
	names := strings.Split(list, ",")
	if strings.HasPrefix(list, "-") {
		kinds = faultKinds()
	}
	for _, name := range names {
		bare, without := strings.CutPrefix(name, "-")
		if attacks()[bare] == nil && bare != "none" {
			return nil, fmt.Errorf("unknown fault %q: use %s", bare, strings.Join(faultKinds(), ", "))
		}
		if without {
			kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == bare })
		} else if bare != "none" {
			kinds = append(kinds, bare)
		}
	}
	if servers == 1 { // the same as an outage, and a leader cannot step down
		kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == "stepdown" || strings.HasPrefix(k, "server-") })
	}
	return kinds, nil
}

// plan is the schedule: it depends on the seed, the duration and the kinds alone.
func plan(c *config) (all []fault) {
	if len(c.kinds) == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(c.seed, 1))
	longest := min(30*time.Second, c.duration/6)
	for at := 2 * time.Second; ; {
		at += time.Duration(float64(1500*time.Millisecond) * r.ExpFloat64())
		if at > c.duration-time.Second {
			return all
		}
		// Most faults are short, and some outlast the lease.
		lasts := min(longest, max(100*time.Millisecond, time.Duration(float64(2500*time.Millisecond)*r.ExpFloat64())))
		all = append(all, fault{at: at, kind: c.kinds[r.IntN(len(c.kinds))], target: r.Uint64(), lasts: lasts})
	}
}

// attack runs the schedule until ctx ends, and returns when every fault is lifted.
func (l *cell) attack(ctx context.Context, all []fault, to *clients) {
	var group sync.WaitGroup
	defer group.Wait()
	begun := time.Now()
	l.begun = begun
	for _, f := range all {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(begun.Add(f.at))):
		}
		group.Go(func() {
			if attacks()[f.kind](ctx, l, to, f) {
				l.note(f.kind)
			}
		})
	}
	<-ctx.Done()
}

// say prints a fault as it happens.
func (l *cell) say(f fault, target string) {
	fmt.Fprintf(os.Stderr, "%6.1fs %s %s %s for %s\n",
		time.Since(l.begun).Seconds(), time.Now().UTC().Format("15:04:05.000"), f.kind, target, f.lasts.Round(10*time.Millisecond))
}

// wait waits until the fault has to be lifted.
func (f fault) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(f.lasts):
	}
}

// hit takes a process down and brings it back. A signal that freezes is followed by SIGCONT, any other by a start. It returns when the
// process was away.
func (l *cell) hit(ctx context.Context, d *daemon, s syscall.Signal, f fault) history.Span {
	span := history.Span{From: time.Now()}
	if s == syscall.SIGSTOP {
		d.signal(s)
		f.wait(ctx)
		d.signal(syscall.SIGCONT)
		span.Back = time.Now()
		span.To = span.Back
		return span
	}
	d.end(s, 20*time.Second)
	f.wait(ctx)
	span.Back = time.Now()
	if err := d.bringUp(l.life); err != nil { // not until ctx ends: the cell must be whole again
		fmt.Fprintln(os.Stderr, "  start again:", err)
	}
	span.To = time.Now()
	return span
}

func workerFault(s syscall.Signal) func(context.Context, *cell, *clients, fault) bool {
	return daemonFault(s, func(l *cell) []*daemon { return l.workers }, func(l *cell, d *daemon, away history.Span) {
		l.lossy(history.Fault{Worker: d.name, Stopped: s == syscall.SIGTERM, From: away.From, To: away.To})
		l.noteAway(away)
	})
}

func serverFault(s syscall.Signal) func(context.Context, *cell, *clients, fault) bool {
	return daemonFault(s, func(l *cell) []*daemon { return l.servers }, func(l *cell, _ *daemon, away history.Span) { l.noteBroken(away) })
}

// daemonFault signals one of these daemons, unless another fault has it, and notes when it was away.
func daemonFault(s syscall.Signal, all func(*cell) []*daemon, note func(*cell, *daemon, history.Span)) func(context.Context, *cell, *clients, fault) bool {
	return func(ctx context.Context, l *cell, _ *clients, f fault) bool {
		d := all(l)[f.target%uint64(len(all(l)))]
		if !d.busy.TryLock() {
			return false
		}
		defer d.busy.Unlock()
		l.say(f, d.name)
		note(l, d, l.hit(ctx, d, s, f))
		return true
	}
}

// outage takes all servers down at once.
func outage(s syscall.Signal) func(context.Context, *cell, *clients, fault) bool {
	return func(ctx context.Context, l *cell, _ *clients, f fault) bool {
		var taken []*daemon
		for _, d := range l.servers {
			if d.busy.TryLock() {
				taken = append(taken, d)
				defer d.busy.Unlock()
			}
		}
		if len(taken) == 0 {
			return false
		}
		l.say(f, fmt.Sprint(len(taken), " servers"))
		var group sync.WaitGroup
		for _, d := range taken {
			group.Go(func() { l.noteBroken(l.hit(ctx, d, s, f)) })
		}
		group.Wait()
		return true
	}
}

// sandboxFault hits a supervisor, or a zygote.
func sandboxFault(s syscall.Signal, zygote bool) func(context.Context, *cell, *clients, fault) bool {
	return func(ctx context.Context, l *cell, _ *clients, f fault) bool {
		d := l.workers[f.target%uint64(len(l.workers))]
		pids, zygotes := sandboxes(l.dir + "/" + d.name)
		if zygote {
			pids = zygotes
		}
		if len(pids) == 0 {
			return false
		}
		slices.Sort(pids)
		pid := pids[f.target/7%uint64(len(pids))]
		l.say(f, fmt.Sprintf("%d of %s", pid, d.name))
		from := time.Now()
		_ = syscall.Kill(pid, s) // it may have ended just now
		if s == syscall.SIGSTOP {
			f.wait(ctx)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		} else {
			l.lossy(history.Fault{Worker: d.name, Sandbox: true, From: from, To: time.Now().Add(l.lease)})
		}
		return true
	}
}

// stepDown makes the leader of a stream, or of a consumer of CMD, or of the cluster step down.
func stepDown(_ context.Context, l *cell, _ *clients, f fault) bool {
	subjects := []string{"$JS.API.META.LEADER.STEPDOWN"}
	for _, s := range []string{"CMD", "EVT", "LOG", "MSG"} {
		subjects = append(subjects, "$JS.API.STREAM.LEADER.STEPDOWN."+streamName(s))
	}
	for _, s := range []string{"state", "leases"} {
		subjects = append(subjects, "$JS.API.STREAM.LEADER.STEPDOWN.KV_"+streamName(s))
	}
	for p := range 4 {
		subjects = append(subjects, fmt.Sprintf("$JS.API.CONSUMER.LEADER.STEPDOWN.%s.dispatch-%d", streamName("CMD"), p))
	}
	subject := subjects[f.target%uint64(len(subjects))]
	l.say(f, subject)
	m, err := l.nc.Request(subject, nil, 2*time.Second)
	var reply struct {
		Success bool `json:"success"`
	}
	return err == nil && json.Unmarshal(m.Data, &reply) == nil && reply.Success
}

// flood queues many commands at once.
func flood(ctx context.Context, l *cell, to *clients, f fault) bool {
	l.say(f, "CMD")
	to.flood(ctx, f)
	return true
}
