package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
)

func TestAnInlineWaitLeavesTheAttemptMostOfItsTime(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2*time.Second, InlineWait(activity.Info{StartToCloseTimeout: time.Minute}))
	require.Equal(t, 500*time.Millisecond, InlineWait(activity.Info{StartToCloseTimeout: 2 * time.Second}))
	require.Equal(t, 250*time.Millisecond, InlineWait(activity.Info{StartToCloseTimeout: time.Minute, HeartbeatTimeout: time.Second}))
}
