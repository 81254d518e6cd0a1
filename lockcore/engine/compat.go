package engine

import "time"

// Party is a request as the rule of compatibility sees it.
type Party struct {
	LockID string
	Mode   string
	// Limit is how many lock IDs may hold when the request is granted, itself included; 0 is without limit.
	Limit int64
}

// Party is the request as the rule of compatibility sees it.
func (a *Acquire) Party() Party { return Party{LockID: a.LockID, Mode: a.Mode, Limit: a.Limit} }

// Party is the queued request as the rule of compatibility sees it.
func (w *Waiter) Party() Party { return Party{LockID: w.LockID, Mode: w.Mode, Limit: w.Limit} }

// Counts reports whether the entry stands beside the party at now: it is alive, and not the party's own. Such an entry
// counts under the party's limit, and is in its way if their modes are not compatible.
func (e *Entry) Counts(p Party, now time.Time) bool {
	return e.LockID != p.LockID && e.ExpiresAt.After(now)
}

// Blocks reports whether the entry is in the party's way at now by its mode. A limit that is reached is another matter,
// since no single entry is the cause: see [Document.Admits].
func (e *Entry) Blocks(p Party, now time.Time) bool {
	return e.Counts(p, now) && !Compatible(e.Mode, p.Mode)
}

// Admits reports whether the party may hold beside all entries that are alive at d.At: this is the rule of compatibility.
func (d *Document) Admits(p Party) bool {
	others := map[string]bool{}
	for i := range d.Held {
		e := &d.Held[i]
		if e.Blocks(p, d.At) {
			return false
		}
		if e.Counts(p, d.At) {
			others[e.LockID] = true
		}
	}
	return p.Limit == 0 || int64(len(others)) < p.Limit
}
