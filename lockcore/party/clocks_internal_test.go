package party

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// steadied is a time with another reading of the monotonic clock, and the same of the wall clock. Package time lets nobody make one.
func steadied(t time.Time, by time.Duration) time.Time {
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext += int64(by)
	return t
}

func TestElapsed_ClocksDiffer_IsTheLonger(t *testing.T) {
	t.Parallel()
	from := time.Now()
	later := from.Add(time.Minute)
	suspended := steadied(later, -50*time.Second) // the monotonic clock stood still for 50 s
	setBack := steadied(from.Add(-time.Hour), time.Hour+time.Minute)
	require.Equal(t, 10*time.Second, suspended.Sub(from), "else the test makes no such times")
	for what, to := range map[string]time.Time{"both agree": later, "suspended": suspended, "wall clock set back": setBack} {
		require.Equal(t, time.Minute, elapsed(from, to), what)
		require.True(t, over(from.Add(time.Minute), to), what)
		require.False(t, over(from.Add(time.Minute+1), to), what)
	}
}
