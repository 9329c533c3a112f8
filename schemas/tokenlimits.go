package schemas

// Limits of a token that was created without other ones.
const (
	DefaultTokenRate       = 100
	DefaultTokenConcurrent = 256
	DefaultTokenSessions   = 256
	DefaultTokenProcesses  = 256
	DefaultTokenBytes      = 100_000_000_000
)

// maxTokenLimit is the largest value of a limit: numbers up to it are exact in JSON.
const maxTokenLimit = 1 << 53

// minTokenRate is the smallest rate that is not 0, in requests per second: one an hour.
const minTokenRate = 1.0 / 3600

// TokenLimits bound what the bearer of a token may use. 0 is no limit. See docs/http.md for what is counted where.
type TokenLimits struct {
	// Rate is how many requests per second each gateway answers, and Burst how many may come at once before that. Default of Burst: twice the
	// rate.
	Rate  float64 `json:"rate,omitempty"`
	Burst int64   `json:"burst,omitempty"`
	// Concurrent is how many requests each gateway answers at a time, streams included.
	Concurrent int64 `json:"concurrent,omitempty"`
	// BytesPerHour is how many bytes of bodies each gateway moves in an hour, in both directions together.
	BytesPerHour int64 `json:"bytes_per_hour,omitempty"`
	// Sessions is how many sessions the tenant may have, and Processes how many processes it may run, for the token to begin another one.
	Sessions  int64 `json:"max_sessions,omitempty"`
	Processes int64 `json:"max_processes,omitempty"`
}

// DefaultTokenLimits are the limits of a new token.
func DefaultTokenLimits() TokenLimits {
	return TokenLimits{
		Rate: DefaultTokenRate, Burst: 2 * DefaultTokenRate, Concurrent: DefaultTokenConcurrent, BytesPerHour: DefaultTokenBytes,
		Sessions: DefaultTokenSessions, Processes: DefaultTokenProcesses,
	}
}

// Bursts is Burst, or its default.
func (l *TokenLimits) Bursts() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return max(1, int64(2*l.Rate))
}

// counts are the limits but the rate.
func (l *TokenLimits) counts() map[string]int64 {
	return map[string]int64{
		"concurrent": l.Concurrent, "bytes_per_hour": l.BytesPerHour, "max_sessions": l.Sessions, "max_processes": l.Processes,
	}
}

// Validate checks every limit. The error is invalid_argument with the detail "path".
func (l *TokenLimits) Validate() error {
	if !(l.Rate == 0 || l.Rate >= minTokenRate && l.Rate <= maxTokenLimit) {
		return invalid("limits.rate", "%g is neither 0, for no limit, nor a number of requests per second, at least one an hour", l.Rate)
	}
	counts := l.counts()
	counts["burst"] = l.Burst
	for name, n := range counts {
		if n < 0 || n > maxTokenLimit {
			return invalid("limits."+name, "%d is not from 0, for no limit, to %d", n, int64(maxTokenLimit))
		}
	}
	return nil
}

// Within returns permission_denied unless every limit is at most that of m: a token must not create one that may use more than itself.
func (l *TokenLimits) Within(m *TokenLimits) error {
	over := ""
	if m.Rate > 0 && (l.Rate == 0 || l.Rate > m.Rate || l.Bursts() > m.Bursts()) {
		over = "rate"
	}
	most := m.counts()
	for name, n := range l.counts() {
		if most[name] > 0 && (n == 0 || n > most[name]) {
			over = name
		}
	}
	if over == "" {
		return nil
	}
	return Errorf(CodePermissionDenied, "limits.%s: a token must not create one that may use more than itself", over).With("path", "limits."+over)
}

// AtMost returns the limits, each lowered to that of m where it is higher.
func (l TokenLimits) AtMost(m *TokenLimits) TokenLimits {
	if m.Rate > 0 && (l.Rate == 0 || l.Rate > m.Rate) {
		l.Rate, l.Burst = m.Rate, m.Burst
	}
	lower := func(n *int64, most int64) {
		if most > 0 && (*n == 0 || *n > most) {
			*n = most
		}
	}
	lower(&l.Concurrent, m.Concurrent)
	lower(&l.BytesPerHour, m.BytesPerHour)
	lower(&l.Sessions, m.Sessions)
	lower(&l.Processes, m.Processes)
	if l.Rate > 0 && m.Rate > 0 {
		l.Burst = min(l.Bursts(), m.Bursts())
	}
	return l
}

// DetailTokenLimit is the detail of a limit_exceeded that a limit of the token, and not of the workspace, is reached: the limit's name in JSON.
const DetailTokenLimit = "token_limit"

// DetailRetryAfter is the detail of such an error after how many seconds the same request may pass.
const DetailRetryAfter = "retry_after"
