// Package clock provides the time, the timers, the timeouts and the jitter of a Locker.
//
// A process can be stopped for longer than a lease lasts, and continue; its timers fire late then. The
// simulation stops Lockers in this way, with a clock of its own. Everywhere else the clock is [Real]. A whole
// machine can be suspended, too: [Now] advances meanwhile.
package clock

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
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

// Now is like time.Now, and advances while the machine is suspended. Go's monotonic clock stops
// then, so that a process would trust a lease that has ended. Only differences between times of Now count.
//
// Where the system has no clock that includes suspension and is never set, as CLOCK_BOOTTIME of Linux,
// Now is time.Now, and Elapsed looks at the wall clock, too.
func Now() time.Time {
	if machine == nil {
		return time.Now()
	}
	return time.Now().Add(machine.total())
}

// Elapsed returns the time between two times of Now, or more.
func Elapsed(from, to time.Time) time.Duration {
	_, most := elapsed(from, to, machine != nil)
	return most
}

// ElapsedAtLeast returns the time between two times of Now, or less.
func ElapsedAtLeast(from, to time.Time) time.Duration {
	least, _ := elapsed(from, to, machine != nil)
	return least
}

// elapsed returns bounds of the time between two times. Unless the monotonic clock includes suspension, it
// may have stood still, and the wall clock may have been set.
func elapsed(from, to time.Time, suspensionCounts bool) (least, most time.Duration) {
	monotonic := to.Sub(from)
	if suspensionCounts {
		return monotonic, monotonic
	}
	wall := to.Round(0).Sub(from.Round(0))
	return min(monotonic, wall), max(monotonic, wall)
}

// machine is nil if the system has no such clock.
var machine = newSuspension(readClocks)

// suspension measures for how long the machine was suspended since the process started.
type suspension struct {
	// read returns a clock that includes suspension, and then one that does not.
	read func() (boot, monotonic time.Duration, ok bool)
	// base is the difference of the clocks at the start.
	base  time.Duration
	known atomic.Int64
}

func newSuspension(read func() (boot, monotonic time.Duration, ok bool)) *suspension {
	s := &suspension{read: read}
	for i := range 5 { // a delay between the two readings makes the difference smaller
		boot, monotonic, ok := read()
		if !ok {
			return nil
		}
		if i == 0 || boot-monotonic > s.base {
			s.base = boot - monotonic
		}
	}
	return s
}

// total returns the time for which the machine was suspended. It grows only, and not by less than a
// millisecond, so that it is constant on a machine that is not suspended.
func (s *suspension) total() time.Duration {
	boot, monotonic, _ := s.read()
	for {
		known := s.known.Load()
		found := int64(boot - monotonic - s.base)
		if found < known+int64(time.Millisecond) {
			return time.Duration(known)
		}
		if s.known.CompareAndSwap(known, found) {
			return time.Duration(found)
		}
	}
}
