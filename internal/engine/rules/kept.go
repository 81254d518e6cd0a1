package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A granted request with Keep adds a kept entry of its own call, which can be taken back with it.
// When its part has ended, that entry merges into the one settled kept entry of its lock ID. So what the
// parts of a hold share is derived from the entries, and no request edits what another one has added.

// keptID, settledID and drainingID return the IDs of entries that derive from the entry of a call.
func keptID(call string) string     { return call + "/k" }
func settledID(call string) string  { return strings.TrimSuffix(call, "/k") + "/s" }
func drainingID(call string) string { return call + "/d" }

// partOf returns the ID of the part with which a kept entry was made; false if it was made without one,
// or is settled.
func (e *Entry) partOf() (id string, ok bool) {
	if e.State != StateKept {
		return "", false
	}
	return strings.CutSuffix(e.ID, "/k")
}

func (e *Entry) isSettled() bool { return e.State == StateKept && strings.HasSuffix(e.ID, "/s") }

// waitsForMore reports whether a step keeps the entry while it waits for other resources. Such an entry
// does not merge: it ends with the next grant of its lock ID, or when its part leaves.
func (e *Entry) waitsForMore() bool {
	_, madeWithPart := e.partOf()
	return madeWithPart && e.Within != ""
}

// Kept returns what a lock ID keeps, as one entry, or nil: a copy of its kept entry, or several merged.
func (d *Document) Kept(lockID string) *Entry {
	var all *Entry
	for i := range d.Entries {
		if e := &d.Entries[i]; e.BelongsTo(lockID) && e.State == StateKept {
			all = all.with(e)
		}
	}
	return all
}

// AllKept returns what Kept returns for each lock ID that keeps the resource.
func (d *Document) AllKept() map[string]*Entry {
	all := map[string]*Entry{}
	for i := range d.Entries {
		if e := &d.Entries[i]; e.State == StateKept {
			all[e.LockID] = all[e.LockID].with(e)
		}
	}
	return all
}

// with returns a kept entry that was merged with another one. The receiver, which may be nil, is reused.
func (e *Entry) with(o *Entry) *Entry {
	if e == nil {
		first := *o
		first.Bars = slices.Clone(o.Bars)
		return &first
	}
	e.add(o)
	return e
}

// add merges another kept entry of the same lock ID into this one: the stronger mode, the longer TTL, the
// later end, the last order, all fences and all bars. The first order is that of the requests since the latest
// loss, so that what was lost and regained in between is not taken for held throughout.
func (e *Entry) add(o *Entry) {
	e.Mode, e.ExpiresAt = Stronger(e.Mode, o.Mode), Later(e.ExpiresAt, o.ExpiresAt)
	if e.TTL != 0 && (o.TTL == 0 || o.TTL > e.TTL) {
		e.TTL = o.TTL
	}
	switch cmp.Compare(o.Regained, e.Regained) {
	case 0:
		e.FirstOrder = min(e.FirstOrder, o.FirstOrder)
	case 1:
		e.FirstOrder, e.Regained = o.FirstOrder, o.Regained
	}
	if o.Order >= e.Order {
		e.Order, e.Trace = o.Order, cmp.Or(o.Trace, e.Trace)
	}
	e.Fence, e.LeastFence = max(e.Fence, o.Fence), max(e.LeastFence, o.LeastFence)
	e.CreatedAt, e.RenewedAt = earliest(e.CreatedAt, o.CreatedAt), latest(e.RenewedAt, o.RenewedAt)
	e.Owner, e.Host, e.Comment = cmp.Or(e.Owner, o.Owner), cmp.Or(e.Host, o.Host), cmp.Or(e.Comment, o.Comment)
	for _, b := range o.Bars {
		e.Bars = with(e.Bars, b, MaxHoldBars)
	}
	e.Limit, e.Within, e.Saga = max(e.Limit, o.Limit), cmp.Or(e.Within, o.Within), cmp.Or(e.Saga, o.Saga)
}

func earliest(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.Before(*a)) {
		return b
	}
	return a
}

func latest(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.After(*a)) {
		return b
	}
	return a
}

// merge merges the matching kept entries into the settled ones of their lock IDs.
func (s *state) merge(which func(*Entry) bool) {
	var merged []Entry
	s.doc.Entries = slices.DeleteFunc(s.doc.Entries, func(e Entry) bool {
		if e.State != StateKept || e.isSettled() || !which(&e) {
			return false
		}
		merged = append(merged, e)
		return true
	})
	for i := range merged {
		e := &merged[i]
		at := slices.IndexFunc(s.doc.Entries, func(o Entry) bool { return o.BelongsTo(e.LockID) && o.isSettled() })
		if at >= 0 {
			s.doc.Entries[at].add(e)
			continue
		}
		e.ID, e.Since, e.ClaimedAt, e.Predecessor = settledID(e.ID), nil, nil, nil
		s.doc.Entries = append(s.doc.Entries, *e)
	}
}

// mergeEnded merges the kept entries whose parts have ended.
func (s *state) mergeEnded() {
	present := make(map[string]bool, len(s.doc.Entries))
	for i := range s.doc.Entries {
		present[s.doc.Entries[i].ID] = true
	}
	s.merge(func(e *Entry) bool {
		part, madeWithPart := e.partOf()
		return madeWithPart && !e.waitsForMore() && !present[part]
	})
}

// partRuns reports whether the part with which a kept entry was made is running.
func (s *state) partRuns(kept *Entry) bool {
	part, _ := kept.partOf()
	return s.anyEntry(func(e *Entry) bool { return e.ID == part })
}

// renewKept extends all kept entries of a lock ID, each by its own TTL.
func (s *state) renewKept(lockID string) {
	for i := range s.doc.Entries {
		if e := &s.doc.Entries[i]; e.BelongsTo(lockID) && e.State == StateKept {
			e.ExpiresAt = Later(e.ExpiresAt, expiry(s.now, e.TTL))
		}
	}
}

// HoldsEnded returns the entries that describe the holds that the operation ended. A kept entry does only if
// it was the last one of its lock ID.
func (r *Result) HoldsEnded(after *Document) []Entry {
	return holdsIn(r.ended(func(e *Entry) bool {
		return e.Holds() && e.CreatedAt != nil && (e.State != StateKept || after.Kept(e.LockID) == nil)
	}))
}

// holdsIn merges the kept entries of each hold into the first of them.
func holdsIn(entries []Entry) []Entry {
	var out []Entry
	at := map[string]int{} // kept entries by lock ID
	for _, e := range entries {
		i, known := at[e.LockID]
		if e.State == StateKept && known {
			out[i].add(&e)
			continue
		}
		if e.State == StateKept {
			at[e.LockID] = len(out)
		}
		out = append(out, e)
	}
	return out
}
