package party

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// elapsed returns the time that has passed, for trust: the larger one of what the monotonic clock and
// the process's own wall clock say. The former stops while the machine is suspended, and the latter
// may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

func over(end, now time.Time) bool { return elapsed(end, now) >= 0 }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// millis returns a TTL as the rules take it: 0 has no end.
func millis(d time.Duration) int64 {
	if d == Forever {
		return 0
	}
	return d.Milliseconds()
}

// remaining returns what is left at now until end.
func remaining(end, now time.Time) time.Duration {
	if !end.Before(rules.Never) {
		return Forever
	}
	return end.Sub(now)
}
