package rules

import "time"

// Covers reports whether holding in mode have is enough for a request of mode want.
func Covers(have, want string) bool { return have == Exclusive || want == Shared }

// Compatible reports whether two lock IDs may hold in these modes at the same time.
func Compatible(a, b string) bool { return a == Shared && b == Shared }

// Party is a request as the rule of compatibility sees it.
type Party struct {
	LockID string
	Mode   string
	// Limit is how many lock IDs may hold when the request is granted; 0 is without limit.
	Limit int64
	// Labelled is set if the party has a run label.
	Labelled bool
	// Within is the lock ID whose kept hold neither blocks nor counts.
	Within string
}

// Party is the request as the rule of compatibility sees it.
func (op *Acquire) Party() Party {
	return Party{op.LockID, op.Mode, op.Limit, op.Label != "", op.Within}
}

// Party is the queued request as the rule of compatibility sees it.
func (w *Waiter) Party() Party { return Party{w.LockID, w.Mode, w.Limit, w.Label != "", w.Within} }

// Of reports whether the entry is a lock ID's own: a part that was cut off from its own lock ID is
// treated like another party.
func (e *Entry) BelongsTo(lockID string) bool { return e.LockID == lockID && !e.CutOff }

// party identifies the party that the entry counts as under a limit.
func (e *Entry) partyKey() string {
	if e.CutOff {
		return e.LockID + "\x00" // which no lock ID contains
	}
	return e.LockID
}

// Counts reports whether the entry is alive at now and counts under the party's limit: it is neither
// the party's own nor kept by the enclosing lock ID.
func (e *Entry) Counts(p Party, now time.Time) bool {
	return !e.BelongsTo(p.LockID) && e.ExpiresAt.After(now) && !p.enclosedBy(e)
}

func (p *Party) enclosedBy(e *Entry) bool {
	return p.Within != "" && e.BelongsTo(p.Within) && e.State == StateKept
}

// Blocks reports whether the entry is in the party's way at now by its mode.
func (e *Entry) Blocks(p Party, now time.Time) bool {
	return e.Counts(p, now) && !Compatible(e.Mode, p.Mode)
}

// Admits is the rule of compatibility: it reports whether the party may hold in addition to all
// entries that are alive at d.At. A party with a run label that holds exclusively is only admitted
// as an exclusive one.
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
			others[e.partyKey()] = true
		}
	}
	return p.Limit == 0 || int64(len(others)) < p.Limit
}
