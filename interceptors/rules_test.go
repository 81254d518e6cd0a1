package interceptors

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestRetryDelay_Position_GrowsFromTheHead(t *testing.T) {
	t.Parallel()
	for attempt := int32(1); attempt < 20; attempt++ {
		before := time.Duration(0)
		for position := 1; position < 100; position++ {
			pause := retryDelay(&lockcore.BusyError{Position: position}, activity.Info{Attempt: attempt}, 0.5)
			require.Positive(t, pause)
			require.LessOrEqual(t, pause, longestPause)
			require.GreaterOrEqual(t, pause, before)
			before = pause
		}
	}
	full := retryDelay(&lockcore.BusyError{Full: true, Waiting: 2000}, activity.Info{Attempt: 1}, 1)
	require.Equal(t, longestPause, full)
}

// A pause beyond the time that the activity has left would fail it at once.
func TestRetryDelay_ActivityTimeout_IsNotExceeded(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for _, ran := range []time.Duration{0, time.Second, 9 * time.Second, 10*time.Second - 1} {
		info := activity.Info{Attempt: 30, ScheduleToCloseTimeout: 10 * time.Second, ScheduledTime: began, StartedTime: began.Add(ran)}
		pause := retryDelay(&lockcore.BusyError{Position: 50}, info, 1)
		require.LessOrEqual(t, pause, max(time.Millisecond, 10*time.Second-ran))
	}
}
