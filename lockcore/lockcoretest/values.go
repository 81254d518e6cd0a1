package lockcoretest

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// expiry is the end of a promise made now; nil for one without end.
func expiry(now time.Time, ttl int64) *time.Time {
	if ttl == 0 {
		return nil
	}
	t := now.Add(ms(ttl))
	return &t
}

func expired(at *time.Time, now time.Time) bool { return at != nil && !at.After(now) }

// later returns the later of two ends; nil is the latest.
func later(a, b *time.Time) *time.Time {
	if a == nil || b == nil {
		return nil
	}
	if b.After(*a) {
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
	d.Shared.Locks = append([]engine.Hold{}, d.Shared.Locks...)
	d.Parts = append([]engine.Part{}, d.Parts...)
	d.Claims = append([]engine.Waiter{}, d.Claims...)
	d.Waiters = append([]engine.Waiter{}, d.Waiters...)
	d.Evicted = append([]engine.Evicted{}, d.Evicted...)
	d.Released = append([]engine.Released{}, d.Released...)
	d.Last.Ended = slices.Clone(d.Last.Ended)
	return d
}
