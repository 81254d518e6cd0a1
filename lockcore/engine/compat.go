package engine

import "time"

// Party is a request as the rule of compatibility sees it.
type Party struct {
	LockID string
	Mode   string
	// Limit is how many lock IDs may hold when the request is granted; 0 is without limit.
	Limit int64
	// Labelled says that the party has a run label.
	Labelled bool
	// Within is the lock ID whose kept hold neither blocks nor counts.
	Within string
}

// Party is the request as the rule of compatibility sees it.
func (a *Acquire) Party() Party { return Party{a.LockID, a.Mode, a.Limit, a.Label != "", a.Within} }

// Party is the queued request as the rule of compatibility sees it.
func (w *Waiter) Party() Party { return Party{w.LockID, w.Mode, w.Limit, w.Label != "", w.Within} }

// Counts reports whether the entry stands beside the party at now, and counts under its limit: it
// is alive, and neither the party's own nor kept around it.
func (e *Entry) Counts(p Party, now time.Time) bool {
	return e.LockID != p.LockID && e.ExpiresAt.After(now) && !p.within(e)
}

func (p *Party) within(e *Entry) bool {
	return p.Within != "" && e.LockID == p.Within && e.State == StateKept
}

// Blocks reports whether the entry is in the party's way at now by its mode.
func (e *Entry) Blocks(p Party, now time.Time) bool {
	return e.Counts(p, now) && !Compatible(e.Mode, p.Mode)
}

// Admits is the rule of compatibility: whether the party may hold beside all entries that are alive
// at d.At. A party with a run label that holds exclusively is only admitted so.
func (d *Document) Admits(p Party) bool {
	if p.Labelled && d.holds(p.LockID, func(e *Entry) bool { return e.Mode == Exclusive }) {
		p.Mode = Exclusive
	}
	others := map[string]bool{}
	for i := range d.Entries {
		e := &d.Entries[i]
		if e.Blocks(p, d.At) {
			return false
		}
		if e.Counts(p, d.At) {
			others[e.LockID] = true
		}
	}
	return p.Limit == 0 || int64(len(others)) < p.Limit
}
