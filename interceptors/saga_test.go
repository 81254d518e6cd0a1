package interceptors

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestSagaStep_NoUndo_IsRefused(t *testing.T) {
	t.Parallel()
	for _, undo := range []any{nil, 7, (func() error)(nil)} {
		l := &fakeLocker{}
		err := runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
			return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
				return s.Step(workflows.Guard(ctx, account), "Debit", undo).Get(ctx, nil)
			})
		})
		require.ErrorContains(t, err, "an undo of type")
		require.Empty(t, l.asked())
	}
}

func TestNestedSaga_Succeeds_LeavesItsLocksToTheOuter(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
				return step(workflows.Guard(ctx, account), "Debit")
			})
			if err != nil {
				return err
			}
			if len(r.seen) > 0 {
				return errors.New("the inner saga released")
			}
			return step(workflows.Guard(ctx, account), "Credit")
		})
	}))
	require.NotZero(t, l.asked()[1].Resources[0].HeldSince)
	require.Len(t, r.seen, 1)
}

func TestSagas_Concurrent_ReleaseWhatTheOtherDoesNotUse(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		start := func(name string, until workflow.Future) workflow.Future {
			future, settable := workflow.NewFuture(ctx)
			workflow.Go(ctx, func(ctx workflow.Context) {
				settable.Set(nil, workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
					if err := step(workflows.Guard(ctx, account, lockcore.Exclusive(name)), "Debit"); err != nil {
						return err
					}
					return until.Get(ctx, nil)
				}))
			})
			return future
		}
		now, set := workflow.NewFuture(ctx)
		later, setLater := workflow.NewFuture(ctx)
		first, second := start("a", now), start("b", later)
		// Both must have asked before the first one ends.
		if err := workflow.Sleep(ctx, 1); err != nil {
			return err
		}
		set.Set(nil, nil)
		err := first.Get(ctx, nil)
		setLater.Set(nil, nil)
		return errors.Join(err, second.Get(ctx, nil))
	}))
	require.Len(t, r.released, 1)
	require.Equal(t, []string{"a"}, r.released[0].Resources)
	require.Len(t, l.released, 1, "the run ends with the second one")
	require.Equal(t, []string{"account/1", "b"}, l.released[0].Resources)
}

func TestSaga_StepAfterItsEnd_BelongsToTheRun(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		var leaked workflow.Context
		if err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			leaked = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga})
			return step(leaked, "Debit")
		}); err != nil {
			return err
		}
		return step(leaked, "Credit")
	}))
	require.Zero(t, l.asked()[1].Resources[0].HeldSince)
	require.Len(t, r.seen, 2)
	require.Len(t, l.released, 1)
	require.Equal(t, party.LastAttempt(2), l.released[0].Order)
}

// The release must not have the options of the workflow's steps: it runs on the queue of Lockstep's own activities.
func TestSaga_CheckFailsOnce_ActivityRepeatsIt(t *testing.T) {
	t.Parallel()
	var options []workflow.ActivityOptions
	seen := &spy{scheduled: func(ctx workflow.Context, name string) {
		if name == wire.ActivityRelease {
			options = append(options, workflow.GetActivityOptions(ctx))
		}
	}}
	r := &releases{fail: 1}
	require.NoError(t, runWorkflow(t, workflowEnv(t, seen, with(&fakeLocker{})), r, func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Nanosecond, ActivityID: "mine", TaskQueue: "elsewhere", RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		})
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			own := workflow.WithActivityOptions(workflows.Guard(ctx, account), workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			return step(own, "Debit")
		})
	}))
	require.Len(t, r.seen, 1)
	require.Len(t, options, 1)
	o := options[0]
	require.Equal(t, "default-test-taskqueue", o.TaskQueue)
	require.Empty(t, o.ActivityID)
	require.Equal(t, 10*time.Second, o.StartToCloseTimeout)
	require.Zero(t, o.RetryPolicy.MaximumAttempts)
	require.Equal(t, "check account/1", o.Summary)
}

// doors answers acquires with the given errors, one after the other, and then grants.
type doors struct {
	*releases
	mu       sync.Mutex
	answers  []error
	requests []party.Request
	// released lists the releases after the run had closed.
	released []party.Release
}

func (d *doors) TryEnter(ctx context.Context, req party.Request) ([]lockcore.Lease, error) {
	return d.Enter(ctx, req)
}

func (d *doors) Enter(_ context.Context, req party.Request) ([]lockcore.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, req)
	if len(d.requests) <= len(d.answers) {
		return nil, d.answers[len(d.requests)-1]
	}
	return []lockcore.Lease{{Resource: account.Name, LockID: req.LockID, Part: req.Part, Order: req.Order, Mode: lockcore.ModeExclusive, Fence: 7}}, nil
}

func (d *doors) WatchFor(string) {}

func (d *doors) Recheck(context.Context, party.Request) (time.Duration, error) {
	return 0, nil
}

func (d *doors) LeaveQueue(context.Context, lockcore.Lease) (bool, error) { return true, nil }

func (d *doors) Leave(context.Context, ...lockcore.Lease) error { return nil }

// lockOnce runs a workflow that takes and releases one lock.
func lockOnce(t *testing.T, d *doors, l workflows.Locks) error {
	t.Helper()
	d.releases = &releases{}
	l.Resources = []lockcore.Resource{account}
	var taken error
	d.Locker = d
	own := &fakeLocker{}
	err := runWorkflow(t, workflowEnv(t, with(own)), d.releases, func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, l)
		taken = err
		if hold == nil {
			return nil
		}
		return errors.Join(hold.Release(ctx), hold.Release(ctx))
	})
	require.NoError(t, err)
	d.released = own.released
	return taken
}

func TestLock_PartialResult_RequestIsRepeated(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"database": errors.New("no primary"), "full": &lockcore.BusyError{Resource: account.Name, Full: true},
	} {
		d := &doors{answers: []error{answer}}
		require.NoError(t, lockOnce(t, d, workflows.Locks{MaxWait: time.Hour}), name)
		require.Len(t, d.requests, 2, name)
		first, second := d.requests[0], d.requests[1]
		require.Equal(t, "default-test-run-id/lock/1", first.Part)
		require.Equal(t, first.Part, second.Part)
		require.True(t, first.Order.Schedule < second.Order.Schedule || first.Order.Attempt < second.Order.Attempt, name)
		require.True(t, first.Persist && first.Reacquire && first.Resources[0].HeldSince == 0)
		require.Len(t, d.seen, 1)
		require.Equal(t, party.LastAttempt(second.Order.Schedule), d.seen[0].Uses[0].By)
	}
}

func TestLock_Fails_ReleasesUnlessNothingIsLeft(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer   error
		try      bool
		releases int
	}{
		"lost":    {answer: &lockcore.LostError{Resource: account.Name}, releases: 1},
		"invalid": {answer: &lockcore.InvalidError{Field: "f"}},
		"tried":   {answer: &lockcore.BusyError{Resource: account.Name}, try: true},
	} {
		d := &doors{answers: []error{tc.answer}}
		err := lockOnce(t, d, workflows.Locks{Try: tc.try})
		require.Equal(t, tc.answer.Error(), workflows.LockError(err).Error(), name)
		for _, sentinel := range []error{lockcore.ErrLost, lockcore.ErrInvalid, lockcore.ErrBusy} {
			require.Equal(t, errors.Is(tc.answer, sentinel), errors.Is(err, sentinel), name)
		}
		require.Len(t, d.requests, 1, name)
		require.Len(t, d.released, tc.releases, name)
	}
}

// forAnHour is a number of attempts: more than a release makes in ten minutes, and fewer than in an hour.
const forAnHour = 60

// unknown checks that an error reports that the database did not answer, and what is not known.
func unknown(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == "lockstep.Unavailable" && app.NonRetryable()
}

// It is not known whether a saga that could not verify was isolated. It is undone like one
// that has lost a lock.
func TestSaga_CannotVerify_IsUndone(t *testing.T) {
	t.Parallel()
	for _, goOn := range []bool{false, true} {
		l, r := &fakeLocker{}, &releases{fail: forAnHour}
		var took time.Duration
		err := runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
			began := workflow.Now(ctx)
			err := workflows.RunSaga(ctx, workflows.SagaOptions{CommitAfterLoss: goOn, CommitTimeout: 5 * time.Minute},
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

// A release that could not verify returns the same error each time, and the lock is released nevertheless.
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
func TestWorkflow_CannotVerify_Fails(t *testing.T) {
	t.Parallel()
	r := &releases{fail: forAnHour}
	err := runWorkflow(t, workflowEnv(t, with(&fakeLocker{})), r, func(ctx workflow.Context) error {
		return step(workflows.WithLocks(ctx, workflows.Locks{Resources: resources(account), Scope: workflows.ScopeSaga}), "Debit")
	})
	require.True(t, unknown(err), "%v", err)
}
