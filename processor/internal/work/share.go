package work

import "math"

// ShareFactor is how many times what is left free a tenant may hold, and a thread of what is left to its tenant. See docs/adr/0064.
const ShareFactor = 7

// Share returns how many of the free places one may take that holds some: those up to its bound or, for a bound of 0, up to its share.
func Share(free, held, most int) int {
	if most > 0 {
		return min(free, max(most-held, 0))
	}
	free = min(free, math.MaxInt/(2*ShareFactor)) // so that nothing overflows
	// The next one is taken while held < ShareFactor*free. Each makes held one more, and free one fewer.
	return max(ShareFactor*free-held+ShareFactor, 0) / (ShareFactor + 1)
}
