package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

func readClocks() (boot, monotonic time.Duration, ok bool) {
	var b, m unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &b) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &m) != nil {
		return 0, 0, false
	}
	return time.Duration(b.Nano()), time.Duration(m.Nano()), true
}
