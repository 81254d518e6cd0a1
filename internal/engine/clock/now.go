package clock

import (
	"sync/atomic"
	"time"
)

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
