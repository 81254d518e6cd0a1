// Package clock is what a Locker waits by: timers, contexts that end, and what spreads them.
//
// A process can be stopped for longer than a lease lasts, and go on; its timers fire then. The
// simulation in lockcoretest stops a Locker in this way, through a clock of its own; everywhere
// else the clock is [Real].
package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Clock makes timers, and contexts that end by themselves.
type Clock interface {
	// NewTimer makes a timer that sends on its channel after d.
	NewTimer(d time.Duration) *Timer
	// AfterFunc makes a timer that calls f, in a goroutine of its own, after d.
	AfterFunc(d time.Duration, f func()) *Timer
	// WithTimeout is context.WithTimeout.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Jitter draws from 0 to most, so that not all act at once. most is positive.
	Jitter(most time.Duration) time.Duration
}

// Source is implemented by an engine that brings the clock of the process that it stands for.
type Source interface {
	Clock() Clock
}

// Of is the clock that engine brings, or [Real].
func Of(engine any) Clock {
	if s, ok := engine.(Source); ok {
		return s.Clock()
	}
	return Real{}
}

// Timer is a time.Timer that a Clock made. C is nil if it calls a function.
type Timer struct {
	C     <-chan time.Time
	Stop  func() bool
	Reset func(time.Duration) bool
}

// Real is the clock of the process itself.
type Real struct{}

// NewTimer is time.NewTimer.
func (Real) NewTimer(d time.Duration) *Timer {
	t := time.NewTimer(d)
	return &Timer{C: t.C, Stop: t.Stop, Reset: t.Reset}
}

// AfterFunc is time.AfterFunc.
func (Real) AfterFunc(d time.Duration, f func()) *Timer {
	t := time.AfterFunc(d, f)
	return &Timer{Stop: t.Stop, Reset: t.Reset}
}

// WithTimeout is context.WithTimeout.
func (Real) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Jitter draws at random.
func (Real) Jitter(most time.Duration) time.Duration {
	return rand.N(most) //nolint:gosec // spreads, and hides nothing
}
