package interceptors

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// The time for a Lock is over, and its last attempt has got no answer from the database. The failure of that attempt is retryable: the
// timeout ends the Lock nevertheless.
func TestLock_DatabaseAwayForMaxWait_ReturnsATimeout(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	register(env, &releases{}, func(ctx workflow.Context) error {
		_, err := workflows.Lock(ctx, workflows.Locks{Resources: resources(account), MaxWait: time.Second})
		return err
	})
	last := temporal.NewApplicationError("the database cannot be reached", wire.FailureUnavailable)
	env.OnActivity(wire.ActivityAcquire, mock.Anything, mock.Anything).
		Return(wire.AcquireResult{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, last))
	err := executed(t, env)
	require.True(t, temporal.IsTimeoutError(err), "%v", err)
}
