package rules

import (
	"slices"
	"time"
)

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// expiry is the end of a TTL that begins now.
func expiry(now time.Time, ttl int64) time.Time {
	if ttl == 0 {
		return Never
	}
	return now.Add(ms(ttl))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func filter[T any](in []T, which func(*T) bool) []T {
	var out []T
	for i := range in {
		if which(&in[i]) {
			out = append(out, in[i])
		}
	}
	return out
}

func without[T any](in []T, which func(*T) bool) []T {
	return slices.DeleteFunc(in, func(v T) bool { return which(&v) })
}

func tail[T any](in []T, n int) []T {
	if len(in) > n {
		return in[len(in)-n:]
	}
	return in
}

// Bytes is not less than the size of the stored document.
func (d *Document) Bytes() int {
	const document, entry, waiter, record = 1000, 900, 500, 200 // without texts
	n := document + len(d.ID) + 16*len(d.Attn)
	for i := range d.Entries {
		e := &d.Entries[i]
		n += entry + len(e.ID) + len(e.LockID) + len(e.Label) + len(e.Part) + len(e.Within) + len(e.Saga) + len(e.Owner) + len(e.Host) +
			len(e.Comment) + len(e.Trace)
		if e.Predecessor != nil {
			n += len(e.Predecessor.LockID) + len(e.Predecessor.Owner) + len(e.Predecessor.Trace)
		}
	}
	for i := range d.Waiters {
		w := &d.Waiters[i]
		n += waiter + len(w.LockID) + len(w.Label) + len(w.Within) + len(w.Saga) + len(w.Part) + len(w.Owner) + len(w.Verdict)
		if w.Hold != nil {
			n += record + len(w.Hold.ID) + len(w.Hold.Host) + len(w.Hold.Comment) + len(w.Hold.Trace)
		}
	}
	for i := range d.Evidence {
		e := &d.Evidence[i]
		n += record + len(e.LockID) + len(e.Label) + len(e.To) + len(e.By) + len(e.Reason)
	}
	for i := range d.Releases {
		n += record + len(d.Releases[i].LockID) + len(d.Releases[i].Label)
	}
	for i := range d.Bars {
		b := &d.Bars[i]
		n += record + len(b.LockID) + len(b.Label) + len(b.Saga) + len(b.Part)
	}
	return n
}

// Clone copies a document so that no slice is shared, and none is nil: the database stores empty
// arrays. What pointers point to is never changed.
func (d *Document) Clone() *Document {
	c := *d
	c.Entries = append([]Entry{}, d.Entries...)
	c.Waiters = append([]Waiter{}, d.Waiters...)
	c.Evidence = append([]Evidence{}, d.Evidence...)
	c.Releases = slices.Clone(d.Releases)
	c.Bars = slices.Clone(d.Bars)
	c.Attn = append([]string{}, d.Attn...)
	return &c
}
