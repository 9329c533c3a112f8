package gateway

import (
	"container/list"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// maxQuotas is how many tokens a gateway counts at a time. Beyond it, the one that was used least recently and is not in use begins anew.
const maxQuotas = 10_000

// quotas are what this gateway counts of each token. ADR 0058 says what is exact.
type quotas struct {
	mu   sync.Mutex
	max  int
	of   map[string]*list.Element // of recent, by tenant and token
	used *list.List               // *quota, the most recently used first
}

func newQuotas(most int) *quotas {
	return &quotas{max: most, of: map[string]*list.Element{}, used: list.New()}
}

// get returns what is counted of a token, which is kept until the release.
func (q *quotas) get(t *schemas.Token, now time.Time) (u *quota, release func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := t.Tenant + "/" + t.ID
	e := q.of[id]
	if e == nil {
		if len(q.of) >= q.max {
			q.evict()
		}
		e = q.used.PushFront(newQuota(id, t.Limits, now))
		q.of[id] = e
	}
	q.used.MoveToFront(e)
	u = e.Value.(*quota)
	u.holders++
	return u, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		u.holders--
	}
}

// evict forgets the token that was used least recently among those that are not in use. Those in use are as many as requests.
func (q *quotas) evict() {
	for e := q.used.Back(); e != nil; e = e.Prev() {
		if u := e.Value.(*quota); u.holders == 0 {
			q.used.Remove(e)
			delete(q.of, u.id)
			return
		}
	}
}

// quota is what is counted of one token.
type quota struct {
	id        string
	limits    schemas.TokenLimits
	holders   int // guarded by quotas.mu
	sessions  tally
	processes tally

	mu       sync.Mutex
	requests bucket
	bytes    bucket
	running  int64 // requests that are being answered
}

func newQuota(id string, l schemas.TokenLimits, now time.Time) *quota {
	u := &quota{id: id, limits: l}
	u.requests = newBucket(l.Rate, float64(l.Bursts()), now)
	u.bytes = newBucket(float64(l.BytesPerHour)/time.Hour.Seconds(), float64(l.BytesPerHour), now)
	return u
}

// begin admits a request whose body has a length, -1 for one that is not known. done is called at its end. Errors: limit_exceeded.
func (u *quota) begin(now time.Time, length int64) (done func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if most := u.limits.Concurrent; most > 0 && u.running >= most {
		return nil, overLimit("concurrent", time.Second, "the token has %d requests and streams open at this gateway, and may have %d", u.running, most)
	}
	if wait := u.bytes.wait(now, float64(max(length, 1))); wait > 0 {
		return nil, u.overBytes(wait)
	}
	if wait := u.requests.wait(now, 1); wait > 0 {
		return nil, overLimit("rate", wait, "the token sends more than %g requests per second to this gateway", u.limits.Rate)
	}
	u.requests.take(now, 1)
	u.running++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.running--
	}, nil
}

// move counts bytes that were moved.
func (u *quota) move(now time.Time, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bytes.take(now, float64(n))
}

// room returns limit_exceeded unless so many bytes may be moved.
func (u *quota) room(now time.Time, n int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if wait := u.bytes.wait(now, float64(n)); wait > 0 {
		return u.overBytes(wait)
	}
	return nil
}

func (u *quota) overBytes(wait time.Duration) error {
	return overLimit("bytes_per_hour", wait, "the token moves more than %d bytes per hour through this gateway", u.limits.BytesPerHour)
}

// overLimit is the error of a request beyond a limit of its token. The same request may pass after a time.
func overLimit(limit string, wait time.Duration, format string, args ...any) error {
	seconds := max(1, int64(math.Ceil(wait.Seconds())))
	return schemas.Errorf(schemas.CodeLimitExceeded, format, args...).With(schemas.DetailTokenLimit, limit).
		With(schemas.DetailRetryAfter, strconv.FormatInt(seconds, 10))
}

// isTokenLimit reports that a limit of the token is the reason of an error.
func isTokenLimit(err error) bool {
	return err != nil && schemas.AsError(err).Details[schemas.DetailTokenLimit] != ""
}

// metered is a reader that ends when a token may move no more bytes.
type metered struct {
	io.Reader
	quota *quota
}

// Read returns limit_exceeded then.
func (m metered) Read(p []byte) (int, error) {
	if err := m.quota.room(time.Now(), 0); err != nil {
		return 0, err
	}
	return m.Reader.Read(p)
}

// bucket has what may be taken now. It fills evenly. One with a rate of 0 is endless.
type bucket struct {
	rate, size, level float64 // the rate is per second
	filled            time.Time
}

func newBucket(rate, size float64, now time.Time) bucket {
	return bucket{rate: rate, size: size, level: size, filled: now}
}

func (b *bucket) fill(now time.Time) {
	if passed := now.Sub(b.filled).Seconds(); passed > 0 {
		b.level, b.filled = min(b.size, b.level+passed*b.rate), now
	}
}

// take takes n, also more than there is: what was moved cannot be taken back.
func (b *bucket) take(now time.Time, n float64) {
	if b.rate > 0 {
		b.fill(now)
		b.level -= n
	}
}

// wait is how long it takes until n can be taken; 0 for now. For more than the size it is the time until the bucket is full, and a second.
func (b *bucket) wait(now time.Time, n float64) time.Duration {
	if b.rate == 0 {
		return 0
	}
	b.fill(now)
	if n <= b.level {
		return 0
	}
	seconds := (min(n, b.size) - b.level) / b.rate
	if n > b.size {
		seconds++
	}
	return time.Duration(min(seconds, time.Hour.Seconds()*24) * float64(time.Second))
}
