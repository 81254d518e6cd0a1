package worker_test

import (
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// A worker may answer every GetVersion with the default, which is how new versions are rolled out with care. Nothing of
// Lockstep asks: that a step parked stands in the history as its failure.
func TestAProviderOfVersionsChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			return s.Step(workflows.Guard(ctx, account), "Look", "Look").Get(ctx, nil)
		})
	})
	b.work(t, sdkworker.Options{
		PreferredVersionProvider: func(sdkworker.PreferredVersionProviderInput) *sdkworker.VersionPreference {
			return &sdkworker.VersionPreference{Version: workflow.DefaultVersion}
		},
	}, map[string]any{"Look": b.look})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED)
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
	events, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"free: false"}, b.read())
	for _, e := range events {
		require.NotEqual(t, "Version", e.GetMarkerRecordedEventAttributes().GetMarkerName())
	}
	b.requireFree(t, account.Name)
}
