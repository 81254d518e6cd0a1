package lockcoretest

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// expiry is the end of a promise made now.
func expiry(now time.Time, ttl int64) time.Time {
	if ttl == 0 {
		return engine.Never
	}
	return now.Add(ms(ttl))
}

func alive(e engine.Entry, now time.Time) bool { return e.ExpiresAt.After(now) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func pick[T any](in []T, which func(T) bool) []T {
	var out []T
	for _, v := range in {
		if which(v) {
			out = append(out, v)
		}
	}
	return out
}

func last[T any](in []T, n int) []T {
	if len(in) > n {
		return in[len(in)-n:]
	}
	return in
}

// clone copies a document so that no slice is shared, and none is nil: the database stores empty arrays.
func clone(d engine.Document) engine.Document {
	d.Entries = append([]engine.Entry{}, d.Entries...)
	d.Waiters = append([]engine.Waiter{}, d.Waiters...)
	d.Evicted = append([]engine.Evicted{}, d.Evicted...)
	if d.Undone = append([]engine.Undone{}, d.Undone...); len(d.Undone) == 0 {
		d.Undone = nil // a document has it only if there is one
	}
	if d.Commits = append([]engine.Commit{}, d.Commits...); len(d.Commits) == 0 {
		d.Commits = nil // nor these
	}
	d.Released = append([]engine.Released{}, d.Released...)
	d.Attn = append([]string{}, d.Attn...)
	d.Last.Ended = slices.Clone(d.Last.Ended)
	d.Last.Expired = slices.Clone(d.Last.Expired)
	return d
}
