package gateway

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func limitOf(err error) string { return schemas.AsError(err).Details[schemas.DetailTokenLimit] }

func TestQuotaOfRequests(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	u := newQuota("a", schemas.TokenLimits{Rate: 2, Burst: 3}, now)
	begin := func(after time.Duration) error {
		done, err := u.begin(now.Add(after), 0)
		if err == nil {
			done()
		}
		return err
	}
	for range 3 {
		testkit.Must(t, begin(0))
	}
	err := begin(0)
	testkit.Equal(t, "limit", limitOf(err), "rate")
	testkit.Equal(t, "seconds to wait", schemas.AsError(err).Details[schemas.DetailRetryAfter], "1")
	testkit.Equal(t, "too early", limitOf(begin(499*time.Millisecond)), "rate")
	testkit.Must(t, begin(500*time.Millisecond))
	testkit.Equal(t, "a clock that goes back", limitOf(begin(-time.Hour)), "rate")
	for range 3 { // no more than the burst after a long pause
		testkit.Must(t, begin(time.Hour))
	}
	testkit.Equal(t, "after a long pause", limitOf(begin(time.Hour)), "rate")
}

func TestQuotaOfConcurrentRequests(t *testing.T) {
	t.Parallel()
	now := time.Now()
	u := newQuota("a", schemas.TokenLimits{Concurrent: 1, Rate: 1, Burst: 2}, now)
	done, err := u.begin(now, 0)
	testkit.Must(t, err)
	for range 5 { // what is refused uses nothing up
		_, err = u.begin(now, 0)
		testkit.Equal(t, "limit", limitOf(err), "concurrent")
	}
	done()
	done, err = u.begin(now, 0)
	testkit.Must(t, err)
	done()
}

func TestQuotaOfBytes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	u := newQuota("a", schemas.TokenLimits{BytesPerHour: 3600}, now)
	_, err := u.begin(now, 3601)
	testkit.Equal(t, "a body larger than the limit", limitOf(err), "bytes_per_hour")
	done, err := u.begin(now, 3600)
	testkit.Must(t, err)
	done()
	u.move(now, 4600) // it could not know
	err = u.room(now, 0)
	testkit.Equal(t, "seconds to wait", schemas.AsError(err).Details[schemas.DetailRetryAfter], "1000")
	_, err = u.begin(now.Add(1000*time.Second), -1)
	testkit.Equal(t, "nothing left", limitOf(err), "bytes_per_hour")
	testkit.Must(t, u.room(now.Add(1001*time.Second), 1))
	endless := newQuota("b", schemas.TokenLimits{}, now)
	endless.move(now, 1<<40)
	testkit.Must(t, endless.room(now, 1<<60))
}

func TestQuotasAreBounded(t *testing.T) {
	t.Parallel()
	now, q := time.Now(), newQuotas(3)
	token := func(id string) *schemas.Token {
		return &schemas.Token{Tenant: "t", ID: id, Limits: schemas.TokenLimits{Rate: 1, Burst: 1}}
	}
	used, release := q.get(token("held"), now)
	_, err := used.begin(now, 0)
	testkit.Must(t, err)
	for i := range 10 {
		_, other := q.get(token(fmt.Sprint(i)), now)
		other()
	}
	testkit.Equal(t, "tokens that are counted", len(q.of), 3)
	testkit.Equal(t, "length of the list", q.used.Len(), 3)
	again, releaseAgain := q.get(token("held"), now)
	testkit.Equal(t, "the token in use is kept", again == used, true)
	another, releaseOther := q.get(&schemas.Token{Tenant: "u", ID: "held"}, now)
	testkit.Equal(t, "an id of another tenant", another == used, false)
	release()
	releaseAgain()
	releaseOther()
}

func TestTallyCountsWhatExistsOnce(t *testing.T) {
	t.Parallel()
	now, lists := time.Now(), 0
	var exist []string
	var broken error
	over := errors.New("over")
	var y tally
	admit := func(id string) (func(), error) {
		return y.admit(id, 2, func() time.Time { return now }, func() ([]string, error) {
			lists++
			return exist, broken
		}, func(int) error { return over })
	}
	must := func(id string) func() {
		t.Helper()
		done, err := admit(id)
		testkit.Must(t, err)
		return done
	}
	a := must("a") // not listed yet
	must("b")()
	testkit.Equal(t, "lists", lists, 1)
	exist = []string{"b"}
	_, err := admit("c")
	testkit.Equal(t, "a third one", errors.Is(err, over), true)
	must("a")() // the same again
	a()
	testkit.Equal(t, "lists when it is full", lists, 2)
	must("c")() // a has failed to begin: no list has it
	exist = []string{"b", "c"}
	_, err = admit("d")
	testkit.Equal(t, "after that", errors.Is(err, over), true)
	exist = nil
	must("e")()
	before := lists
	must("f")()
	testkit.Equal(t, "lists while there is room", lists, before)
	exist, now = []string{"x", "y"}, now.Add(2*tallyAge)
	y.known = map[string]bool{}
	_, err = admit("g")
	testkit.Equal(t, "what others have begun", errors.Is(err, over), true)
	broken = errors.New("broken")
	_, err = admit("h")
	testkit.Equal(t, "a list that fails", errors.Is(err, broken), true)
}
