package clock

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// steadied returns t with its reading of the monotonic clock moved, and with the same wall clock. Package time has no function for this.
func steadied(t time.Time, by time.Duration) time.Time {
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext += int64(by)
	return t
}

func TestElapsed_ClocksDiffer_IsBounded(t *testing.T) {
	t.Parallel()
	from := Now()
	to := from.Add(time.Minute)
	slept := steadied(to, -50*time.Second)                           // the monotonic clock stood still for 50 s
	setBack := steadied(from.Add(-time.Hour), time.Hour+time.Minute) // the wall clock
	setForward := steadied(from.Add(time.Hour), time.Minute-time.Hour)
	require.Equal(t, 10*time.Second, slept.Sub(from), "else the test makes no such times")
	require.Equal(t, time.Minute, setForward.Sub(from), "else the test makes no such times")
	for name, c := range map[string]struct {
		to          time.Time
		counted     bool
		least, most time.Duration
	}{
		"BothAgree":             {to, false, time.Minute, time.Minute},
		"Suspended":             {slept, false, 10 * time.Second, time.Minute},
		"SetBack":               {setBack, false, -time.Hour, time.Minute},
		"SetForward":            {setForward, false, time.Minute, time.Hour},
		"CountedBothAgree":      {to, true, time.Minute, time.Minute},
		"CountedWallSetBack":    {setBack, true, time.Minute, time.Minute},
		"CountedWallSetForward": {setForward, true, time.Minute, time.Minute},
	} {
		least, most := elapsed(from, c.to, c.counted)
		require.Equal(t, c.least, least, name)
		require.Equal(t, c.most, most, name)
	}
	require.Equal(t, runtime.GOOS == "linux", machine != nil)
	if runtime.GOOS == "linux" {
		require.Equal(t, time.Minute, Elapsed(from, setForward))
	}
}

func TestSuspension_Suspended_IsCounted(t *testing.T) {
	t.Parallel()
	boot, monotonic := time.Hour, 20*time.Minute
	s := newSuspension(func() (time.Duration, time.Duration, bool) { return boot, monotonic, true })
	require.Zero(t, s.total(), "what was before the start does not count")
	boot, monotonic = boot+10*time.Second, monotonic+10*time.Second
	require.Zero(t, s.total(), "the machine was not suspended")
	boot += 30 * time.Second
	require.Equal(t, 30*time.Second, s.total())
	monotonic += time.Millisecond / 2 // the process was stopped between the readings
	require.Equal(t, 30*time.Second, s.total())
	monotonic += time.Minute
	require.Equal(t, 30*time.Second, s.total(), "it never shrinks")
	require.Nil(t, newSuspension(func() (time.Duration, time.Duration, bool) { return 0, 0, false }))
}
