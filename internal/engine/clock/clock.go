// Package clock provides the timers, timeouts and jitter of a Locker.
//
// A process can be stopped for longer than a lease lasts, and continue; its timers fire late then. The
// simulation stops Lockers in this way, with a clock of its own. Everywhere else the clock is [Real].
package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Clock creates timers and contexts with a timeout.
type Clock interface {
	// NewTimer returns a timer that sends on its channel after d.
	NewTimer(d time.Duration) *Timer
	// AfterFunc returns a timer that calls f in a new goroutine after d.
	AfterFunc(d time.Duration, f func()) *Timer
	// WithTimeout is like context.WithTimeout.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Jitter returns a random duration in [0, most). most must be positive.
	Jitter(most time.Duration) time.Duration
}

// Source is implemented by stores that also simulate the clock of a process.
type Source interface {
	Clock() Clock
}

// Of returns the clock of engine if it is a [Source], and [Real] otherwise.
func Of(engine any) Clock {
	if s, ok := engine.(Source); ok {
		return s.Clock()
	}
	return Real{}
}

// Timer is like a time.Timer. C is nil if the timer calls a function.
type Timer struct {
	C     <-chan time.Time
	Stop  func() bool
	Reset func(time.Duration) bool
}

// Sleep waits for d, and reports whether ctx still lives.
func Sleep(ctx context.Context, c Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Real is the clock of the process itself.
type Real struct{}

// NewTimer is like time.NewTimer.
func (Real) NewTimer(d time.Duration) *Timer {
	t := time.NewTimer(d)
	return &Timer{C: t.C, Stop: t.Stop, Reset: t.Reset}
}

// AfterFunc is like time.AfterFunc.
func (Real) AfterFunc(d time.Duration, f func()) *Timer {
	t := time.AfterFunc(d, f)
	return &Timer{Stop: t.Stop, Reset: t.Reset}
}

// WithTimeout is like context.WithTimeout.
func (Real) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Jitter returns a random duration in [0, most).
func (Real) Jitter(most time.Duration) time.Duration {
	return rand.N(most) //nolint:gosec // needs no secrecy
}
