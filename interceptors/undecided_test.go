package interceptors

import (
	"errors"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// forAnHour is more attempts than a release makes in ten minutes, and fewer than in an hour.
const forAnHour = 60

// unknown checks that an error says that the database did not answer, and what is not known.
func unknown(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == "lockstep.Unavailable" && app.NonRetryable()
}

// A saga whose commit could not be tried is not known to have been isolated: it is undone like one
// that has lost a lock.
func TestASagaThatCannotVerifyItsLocksIsUndone(t *testing.T) {
	t.Parallel()
	for _, goOn := range []bool{false, true} {
		l, r := &fakeLocker{}, &releases{fail: forAnHour}
		var took time.Duration
		err := runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
			began := workflow.Now(ctx)
			err := workflows.RunSaga(ctx, workflows.SagaOptions{CommitAfterLoss: goOn, ReleaseTimeout: 5 * time.Minute},
				func(ctx workflow.Context, s *workflows.Saga) error {
					return s.Step(workflows.Guard(ctx, account), "Debit", "Credit").Get(ctx, nil)
				})
			took = workflow.Now(ctx).Sub(began)
			return err
		})
		parts := []string{"default-test-run-id/1/Debit"}
		if goOn {
			require.NoError(t, err)
		} else {
			require.True(t, unknown(err), "%v", err)
			require.ErrorContains(t, err, "whether locks were lost is not known")
			parts = append(parts, "default-test-run-id/2/Credit")
		}
		for i, asked := range l.asked() {
			require.Equal(t, parts[i], asked.Part)
		}
		require.Len(t, l.asked(), len(parts))
		require.GreaterOrEqual(t, took, 2*time.Minute) // the next attempt would have come too late
		require.Less(t, took, 12*time.Minute)
	}
}

// A release that could not verify says so each time, and has the lock released all the same.
func TestHoldRelease_CannotVerify_SaysSo(t *testing.T) {
	t.Parallel()
	d := &doors{releases: &releases{fail: forAnHour}}
	d.Locker = d
	var first, second error
	own := &fakeLocker{}
	err := runWorkflow(t, workflowEnv(t, with(own)), d.releases, func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, workflows.Locks{Resources: resources(account)})
		if err != nil {
			return err
		}
		first, second = hold.Release(ctx), hold.Release(ctx)
		return nil
	})
	require.NoError(t, err, "the workflow was told, and went on")
	require.True(t, unknown(first), "%v", first)
	require.Equal(t, first, second)
	require.Len(t, own.released, 1)
	require.Equal(t, []string{account.Name}, own.released[0].Resources)
}

// Locks that the workflow does not release are verified at the end of the workflow, which fails if
// that cannot be done.
func TestAWorkflowThatCannotVerifyItsLocksFails(t *testing.T) {
	t.Parallel()
	r := &releases{fail: forAnHour}
	err := runWorkflow(t, workflowEnv(t, with(&fakeLocker{})), r, func(ctx workflow.Context) error {
		return step(workflows.WithLocks(ctx, workflows.Locks{Resources: resources(account), Scope: workflows.ScopeSaga}), "Debit")
	})
	require.True(t, unknown(err), "%v", err)
}
