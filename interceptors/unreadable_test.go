package interceptors

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// blind is a data converter that cannot read the result of lockstep.Acquire.
type blind struct{ converter.DataConverter }

func (b blind) FromPayloads(payloads *commonpb.Payloads, to ...any) error {
	if slices.ContainsFunc(to, func(to any) bool { _, ours := to.(*wire.AcquireResult); return ours }) {
		return errors.New("no key")
	}
	return b.DataConverter.FromPayloads(payloads, to...)
}

// A Lock is cancelled in the workflow task that has its result. Whether it holds its locks does not depend on whether its worker can read
// the result: another worker may.
func TestLock_CancelledAndResultUnreadable_FailsTheTask(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	env.SetDataConverter(blind{converter.GetDefaultDataConverter()})
	var answered atomic.Bool
	register(env, &releases{}, func(ctx workflow.Context) error {
		var cancel workflow.CancelFunc
		done := false
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer func() { done = true }()
			var locks workflow.Context
			locks, cancel = workflow.WithCancel(ctx)
			_, _ = workflows.Lock(locks, workflows.Locks{Resources: resources(account)})
		})
		if err := workflow.Await(ctx, answered.Load); err != nil {
			return err
		}
		cancel()
		return workflow.Await(ctx, func() bool { return done })
	})
	env.OnActivity(wire.ActivityAcquire, mock.Anything, mock.Anything).Return(func(context.Context, converter.RawValue) (wire.AcquireResult, error) {
		answered.Store(true)
		return wire.AcquireResult{Leases: make([]wire.Lease, 1)}, nil
	})
	require.ErrorContains(t, executed(t, env), "the result of lockstep.Acquire cannot be read: ")
}

// A saga must not commit after one of its steps has reported a loss. If the workflow cannot read which lock was lost, it does not know.
func TestSaga_DetailsOfLossUnreadable_FailsTheTask(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	register(env, &releases{}, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			_ = step(workflows.Guard(ctx, account), "Debit")
			return nil
		})
	})
	env.OnActivity("Debit", mock.Anything).Return("", temporal.NewNonRetryableApplicationError("lost", wire.FailureLost, nil, "sealed"))
	require.ErrorContains(t, executed(t, env), "the details of a failure of type lockstep.Lost cannot be read: ")
}
