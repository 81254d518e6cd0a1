package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The worker's clock may be ahead of the server's by more than MaxWait, or behind it. The server's clocks may step back between hosts.
func TestMaxWait_ClocksDiffer_EndsInTime(t *testing.T) {
	t.Parallel()
	busy := &lockcore.BusyError{Resource: "account/2"}
	for _, ahead := range []time.Duration{0, 12 * time.Second, time.Hour, -time.Hour} {
		for waited, left := range map[time.Duration]time.Duration{-time.Second: 10 * time.Second, 4 * time.Second: 6 * time.Second, 11 * time.Second: 0} {
			server := time.Now().Add(-ahead)
			info := activity.Info{ScheduledTime: server.Add(-waited), StartedTime: server}
			err := waitFailure(wire.Duration(10*time.Second), waitedFor(info, time.Now()), time.Minute, busy)
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			require.Equal(t, left == 0, app.NonRetryable(), "%v ahead, waited %v", ahead, waited)
			require.InDelta(t, left.Seconds(), app.NextRetryDelay().Seconds(), 1, "%v ahead, waited %v", ahead, waited)
		}
	}
	info := activity.Info{ScheduledTime: time.Now(), StartedTime: time.Now()}
	require.Greater(t, waitedFor(info, time.Now().Add(-time.Minute)), 59*time.Second, "the attempt itself takes time, too")
}
