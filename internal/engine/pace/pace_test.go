package pace_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
)

func TestBackoff_Attempts_DoublesUpToTheBound(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 30 * time.Second, math.MaxInt: 30 * time.Second,
	} {
		require.Equal(t, want, pace.Backoff(time.Second, 30*time.Second, n), n)
	}
	require.Equal(t, time.Second, pace.Backoff(time.Minute, time.Second, 1), "the first pause is bounded, too")
}

func TestJitter_Pause_IsAtLeastHalfAndNeverExceeded(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{0, 1, 2, time.Second, time.Hour} {
		require.Equal(t, pause/2, pace.Jitter(pause, func(time.Duration) time.Duration { return 0 }))
		require.LessOrEqual(t, pace.Jitter(pause, func(most time.Duration) time.Duration { return most - 1 }), pause)
		require.LessOrEqual(t, pace.Jitter(pause, rand.N[time.Duration]), pause)
	}
}
