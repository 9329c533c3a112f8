package history

import "slices"

// stored are the sequences that a feed should have.
func (h *History) stored(f *Feed) (seqs []uint64) {
	if f.Messages {
		for _, m := range h.Messages {
			if f.Thread == "" || f.Thread == m.Thread {
				seqs = append(seqs, m.Seq)
			}
		}
		return seqs
	}
	for _, ev := range h.Events {
		if f.Thread == "" || f.Thread == ev.Thread {
			seqs = append(seqs, ev.Seq)
		}
	}
	return seqs
}

// Missing is the number of messages that a feed does not have yet.
func (h *History) Missing(f *Feed) int { return len(h.missing(f)) }

func (h *History) missing(f *Feed) []uint64 {
	has := make(map[uint64]bool, len(f.Seqs))
	for _, seq := range f.Seqs {
		has[seq] = true
	}
	return slices.DeleteFunc(h.stored(f), func(seq uint64) bool { return has[seq] })
}

// checkFeeds checks that each follower received every message once and in order.
func (c *checker) checkFeeds() {
	for i := range c.Feeds {
		f := &c.Feeds[i]
		at := &process{thread: f.Thread}
		if missing := c.missing(f); len(missing) > 0 {
			c.add(FeedHole, at, "%s did not receive %d of %d messages; the first has sequence %d, the last %d",
				f.Name, len(missing), len(c.stored(f)), missing[0], missing[len(missing)-1])
		}
		for n := 1; n < len(f.Seqs); n++ {
			if f.Seqs[n] <= f.Seqs[n-1] {
				c.add(FeedDisorder, at, "%s received sequence %d after %d", f.Name, f.Seqs[n], f.Seqs[n-1])
			}
		}
	}
}

// checkEvents checks that each event is stored once.
func (c *checker) checkEvents() {
	first := make(map[string]uint64, len(c.Events))
	for _, ev := range c.Events {
		if before, twice := first[ev.ID]; twice {
			c.add(DoubleEvent, &process{thread: ev.Thread}, "event %s has EVT %d and %d", ev.ID, before, ev.Seq)
			continue
		}
		first[ev.ID] = ev.Seq
	}
}
