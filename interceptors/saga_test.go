package interceptors

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"

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
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
				return step(workflows.Guard(ctx, account), "Debit")
			})
			if err != nil {
				return err
			}
			if len(r.released) > 0 {
				return errors.New("the inner saga released")
			}
			return errors.Join(step(workflows.Guard(ctx, account), "Credit"), s.Verify(ctx))
		})
	}))
	require.NotZero(t, l.asked()[1].HeldSince[account.Name])
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
		err := errors.Join(first.Get(ctx, nil), workflow.Sleep(ctx, time.Second)) // in the same task, the end of the run releases both
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
	require.Empty(t, l.asked()[1].HeldSince)
	require.Len(t, l.released, 1)
	require.Equal(t, lockcore.LastAttempt(2), l.released[0].Order)
}

// The activity must not have the options of the workflow's steps: it runs on the queue of Lockstep's own activities.
func TestSagaVerify_DatabaseFailsOnce_IsRepeated(t *testing.T) {
	t.Parallel()
	var options []workflow.ActivityOptions
	seen := &spy{scheduled: func(ctx workflow.Context, name string) {
		if name == wire.ActivityVerify {
			options = append(options, workflow.GetActivityOptions(ctx))
		}
	}}
	r := &releases{fail: 1}
	require.NoError(t, runWorkflow(t, workflowEnv(t, seen, with(&fakeLocker{})), r, func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Nanosecond, ActivityID: "mine", TaskQueue: "elsewhere", RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		})
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			own := workflow.WithActivityOptions(workflows.Guard(ctx, account), workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			return errors.Join(step(own, "Debit"), s.Verify(ctx))
		})
	}))
	require.Len(t, r.seen, 1)
	require.Len(t, options, 1)
	o := options[0]
	require.Equal(t, "default-test-taskqueue", o.TaskQueue)
	require.Empty(t, o.ActivityID)
	require.Equal(t, 10*time.Second, o.StartToCloseTimeout)
	require.Zero(t, o.RetryPolicy.MaximumAttempts)
	require.Equal(t, "verify account/1", o.Summary)
}

// doors answers acquires with the given errors, one after the other, and then grants.
type doors struct {
	*releases
	mu       sync.Mutex
	answers  []error
	requests []lockcore.StepRequest
	// released lists the releases after the run had closed.
	released []lockcore.Release
}

func (d *doors) TryEnter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	return d.Enter(ctx, req)
}

func (d *doors) Enter(_ context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, req)
	if len(d.requests) <= len(d.answers) {
		return nil, d.answers[len(d.requests)-1]
	}
	return []lockcore.Lease{{Resource: account.Name, LockID: req.LockID, Part: req.Part, Order: req.Order, Mode: lockcore.ModeExclusive, Fence: 7}}, nil
}

func (d *doors) WatchFor(string) {}

func (d *doors) Recheck(context.Context, lockcore.StepRequest) (time.Duration, error) {
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
	d.activitySteps = d
	own := &fakeLocker{}
	err := runWorkflow(t, workflowEnv(t, with(own)), d.releases, func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, l)
		taken = err
		if hold == nil {
			return nil
		}
		return errors.Join(hold.Verify(ctx), hold.Release(ctx), hold.Release(ctx))
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
		require.True(t, first.Keep && first.Reacquire && len(first.HeldSince) == 0)
		require.Len(t, d.seen, 1)
		require.Equal(t, lockcore.LastAttempt(second.Order.Schedule), d.seen[0].Used[0].Order)
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
		"invalid": {answer: &lockcore.InvalidError{Field: "f"}, releases: 1}, // an earlier attempt may have been accepted
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

// While one coroutine releases a Lock, and the database has not answered, another one learns the outcome too.
func TestLock_ReleasedTwiceAtOnce_BothLearnTheOutcome(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	own := &releases{}
	own.activitySteps = &doors{releases: own}
	var errs []error
	register(env, own, func(ctx workflow.Context) error {
		hold, err := lockFor(ctx, old)
		if err != nil {
			return err
		}
		for _, call := range []func(ctx workflow.Context) error{hold.Release, hold.Release, hold.Verify} {
			workflow.Go(ctx, func(ctx workflow.Context) { errs = append(errs, call(ctx)) })
		}
		return workflow.Await(ctx, func() bool { return len(errs) == 3 })
	})
	lost := &lockcore.LostError{Resource: account.Name}
	env.OnActivity(wire.ActivityVerify, mock.Anything, mock.Anything).After(time.Second).Return(wire.VerifyResult{}, wire.Failure(lost)).Once()
	require.NoError(t, executed(t, env))
	for _, err := range errs {
		require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	}
}

// A saga that begins again after a deadlock waits for the release of its own locks, and not for those of other sagas of the run.
func TestRunSaga_BeginsAgain_WaitsForItsOwnLocksOnly(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{enter: func(_ context.Context, _ int, req lockcore.StepRequest) error {
		if req.Resources[0].Name == "victim" && req.Order.Schedule < 5 {
			return &lockcore.DeadlockError{Resource: "victim"}
		}
		return nil
	}}
	env := workflowEnv(t, with(l))
	var other, again time.Duration
	register(env, &releases{}, func(ctx workflow.Context) error {
		begin := workflow.Now(ctx)
		err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			return step(workflows.Guard(ctx, lockcore.Exclusive("other")), "Debit")
		})
		other = workflow.Now(ctx).Sub(begin)
		return errors.Join(err, workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			if again = workflow.Now(ctx).Sub(begin); s.Attempt() > 1 {
				return nil
			}
			return errors.Join(step(workflows.Guard(ctx, lockcore.Exclusive("own")), "Debit"), step(workflows.Guard(ctx, lockcore.Exclusive("victim")), "Credit"))
		}))
	})
	for name, takes := range map[string]time.Duration{"other": time.Hour, "own": time.Minute} {
		concerns := mock.MatchedBy(func(in converter.RawValue) bool { return strings.Contains(string(in.Payload().GetData()), name) })
		env.OnActivity(wire.ActivityRelease, mock.Anything, concerns).After(takes).Return(wire.ReleaseResult{}, nil)
	}
	require.NoError(t, executed(t, env))
	require.Less(t, other, time.Minute)
	require.Greater(t, again, time.Minute)
	require.Less(t, again, time.Hour)
}
