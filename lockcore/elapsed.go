package lockcore

import "time"

// elapsed is how much time has passed, for trust: by the monotonic clock or by the process's own
// wall clock, whichever says more. The former stands still while the machine is suspended; the
// latter may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// over reports whether a trust that ends at end is over.
func over(end, now time.Time) bool { return elapsed(end, now) >= 0 }
