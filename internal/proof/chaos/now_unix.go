//go:build unix

package main

import "golang.org/x/sys/unix"

// now returns the time of the machine's monotonic clock, which counts from its boot. No fault of a wall clock changes it.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is nothing to check without a clock
	}
	return t.Nano()
}
