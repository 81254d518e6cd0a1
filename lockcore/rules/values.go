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

func pick[T any](in []T, which func(*T) bool) []T {
	var out []T
	for i := range in {
		if which(&in[i]) {
			out = append(out, in[i])
		}
	}
	return out
}

func drop[T any](in []T, which func(*T) bool) []T {
	return slices.DeleteFunc(in, func(v T) bool { return which(&v) })
}

func last[T any](in []T, n int) []T {
	if len(in) > n {
		return in[len(in)-n:]
	}
	return in
}

// Clone copies a document so that no slice is shared, and none is nil: the database stores empty
// arrays. What pointers point to is never changed.
func (d *Document) Clone() *Document {
	c := *d
	c.Entries = append([]Entry{}, d.Entries...)
	c.Waiters = append([]Waiter{}, d.Waiters...)
	c.Evicted = append([]Evicted{}, d.Evicted...)
	c.Over = slices.Clone(d.Over)
	c.Bars = slices.Clone(d.Bars)
	c.Attn = append([]string{}, d.Attn...)
	return &c
}
