package lockcore

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// silences are, by lock ID, for how long nothing was heard of its entries in a document. Places in
// the queue do not count.
func silences(d *engine.Document) map[string]time.Duration {
	silent := map[string]time.Duration{}
	for i := range d.Held {
		e := &d.Held[i]
		now := max(0, d.At.Sub(seen(e)))
		if before, known := silent[e.LockID]; !known || now < before {
			silent[e.LockID] = now
		}
	}
	return silent
}

// seen is when an entry last gave a sign of life. An entry with an end was promised its TTL from
// then on.
func seen(e *engine.Entry) time.Time {
	var last time.Time
	for _, t := range []*time.Time{e.CreatedAt, e.ClaimedAt, e.RenewedAt} {
		if t != nil && t.After(last) {
			last = *t
		}
	}
	if e.TTL > 0 && e.ExpiresAt.Before(engine.Never) {
		if t := e.ExpiresAt.Add(-time.Duration(e.TTL) * time.Millisecond); t.After(last) {
			last = t
		}
	}
	return last
}
