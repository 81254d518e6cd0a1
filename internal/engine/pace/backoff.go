package pace

import "time"

// Backoff returns the pause before an attempt is repeated for the nth time: first before n = 1, twice as long for each
// further one, and at most most.
func Backoff(first, most time.Duration, n int) time.Duration {
	pause := first
	for ; n > 1 && pause < most; n-- {
		pause *= 2
	}
	return min(pause, most)
}

// Jitter returns a random time between half of a pause and all of it, so that callers that began to wait together do not
// come back together. random returns a duration in [0, most), see [clock.Clock.Jitter].
func Jitter(pause time.Duration, random func(most time.Duration) time.Duration) time.Duration {
	return pause/2 + random(pause/2+1)
}
