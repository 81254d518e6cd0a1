package interceptors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/workflows"
)

var account = lockcore.Exclusive("account/1")

// activitySteps is the part of a *lockcore.Steps that the activities need.
type activitySteps interface {
	currentrun.Locker
	Renew(ctx context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error)
	LeaveQueue(ctx context.Context, lease lockcore.Lease) (ended bool, err error)
	Recheck(ctx context.Context, req lockcore.StepRequest) (again time.Duration, err error)
	WatchFor(resource string)
}

// releases records the verifications and releases by activities.
type releases struct {
	activitySteps
	mu       sync.Mutex
	seen     []lockcore.Verify
	released []lockcore.Release
	// fail is the number of calls that fail before one succeeds. lost is set if verifying finds that a lock was lost.
	fail int
	lost bool
}

func (r *releases) CollectionID(context.Context) (string, error) { return "own", nil }

func (r *releases) KnownCollectionID() string { return "own" }

func (r *releases) Replaces(_ context.Context, id string) (bool, string, error) {
	return id == "replaced", "own", nil
}

func (r *releases) Verify(_ context.Context, v lockcore.Verify) error {
	if r.lost {
		return &lockcore.LostError{Resource: v.Used[0].Resource, LockID: v.LockID}
	}
	return r.record(func() { r.seen = append(r.seen, v) })
}

func (r *releases) Raise(context.Context, lockcore.Raise) error { return nil }

func (r *releases) ReleaseCommitted(ctx context.Context, of lockcore.Release) ([]lockcore.LostError, error) {
	return nil, r.Release(ctx, of)
}

func (r *releases) Release(_ context.Context, of lockcore.Release) error {
	return r.record(func() { r.released = append(r.released, of) })
}

func (r *releases) record(call func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail > 0 {
		r.fail--
		return errors.New("no primary")
	}
	call()
	return nil
}

// runWorkflow runs fn with the steps Debit and Credit, which succeed, and Refuse, which fails.
func runWorkflow(t *testing.T, env *testsuite.TestWorkflowEnvironment, r *releases, fn func(ctx workflow.Context) error) error {
	t.Helper()
	register(env, r, fn)
	return executed(t, env)
}

func register(env *testsuite.TestWorkflowEnvironment, r *releases, fn func(ctx workflow.Context) error) {
	for _, name := range []string{"Debit", "Credit"} {
		env.RegisterActivityWithOptions(func(context.Context) (string, error) { return name, nil }, activity.RegisterOptions{Name: name})
	}
	env.RegisterActivityWithOptions(func(context.Context) error {
		return temporal.NewNonRetryableApplicationError("no", "No", nil)
	}, activity.RegisterOptions{Name: "Refuse"})
	activities.Register(env, r)
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		return fn(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute}))
	}, workflow.RegisterOptions{Name: "W"})
}

func executed(t *testing.T, env *testsuite.TestWorkflowEnvironment) error {
	t.Helper()
	env.ExecuteWorkflow("W")
	require.True(t, env.IsWorkflowCompleted())
	return env.GetWorkflowError()
}

func step(ctx workflow.Context, name string) error {
	return workflow.ExecuteActivity(ctx, name).Get(ctx, nil)
}

func TestGuards_OfSaga_AreNumberedAndCarryHeld(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	err := runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		if err := step(ctx, "Credit"); err != nil { // not guarded, but numbered
			return err
		}
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			_ = step(ctx, "Refuse")
			_ = step(ctx, "Debit")
			ctx = workflows.Guard(ctx, account, lockcore.Shared("rates"))
			if err := step(ctx, "Credit"); err != nil {
				return err
			}
			return errors.Join(step(workflows.Unguarded(ctx), "Debit"), s.Verify(ctx))
		})
	})
	require.NoError(t, err)
	asked := l.asked()
	require.Len(t, asked, 3)
	for i, want := range []struct {
		part     string
		schedule uint32
		since    []uint32
	}{
		{"default-test-run-id/2/Refuse", 2, []uint32{0}}, {"default-test-run-id/3/Debit", 3, []uint32{0}},
		{"default-test-run-id/4/Credit", 4, []uint32{3, 0}},
	} {
		require.Equal(t, want.part, asked[i].Part)
		require.Equal(t, lockcore.Order{Schedule: want.schedule, Attempt: 1}, asked[i].Order)
		require.True(t, asked[i].Keep)
		for j, since := range want.since {
			require.Equal(t, since, asked[i].HeldSince[asked[i].Resources[j].Name], "%s %d", want.part, j)
		}
	}
	require.Len(t, r.seen, 1)
	require.Equal(t, []lockcore.Use{{Resource: "account/1", Order: lockcore.LastAttempt(3)}, {Resource: "rates", Order: lockcore.LastAttempt(4)}}, r.seen[0].Used)
	require.Empty(t, r.released)
	require.Equal(t, []lockcore.Release{{
		LockID: asked[0].LockID, Run: "default-test-run-id", Resources: []string{"account/1", "rates"}, Order: lockcore.LastAttempt(5),
	}}, l.released)
}

func TestGuards_ScopeStep_HoldNothingForTheSaga(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			short := workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeStep})
			return errors.Join(step(short, "Debit"), step(workflows.Guard(ctx, account), "Debit"), s.Verify(ctx))
		})
	}))
	require.False(t, l.asked()[0].Keep)
	require.True(t, l.asked()[1].Keep)
	require.Empty(t, l.asked()[1].HeldSince)
	require.Len(t, r.seen, 1)
}

func TestGuards_UnknownScope_IsRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: "galaxy"})
		if err := step(ctx, "Debit"); !errors.Is(err, lockcore.ErrInvalid) {
			return errors.New("it was not refused")
		}
		return nil
	}))
	require.Empty(t, l.asked())
}

func TestFuture_GuardedStep_WorksInSelectors(t *testing.T) {
	t.Parallel()
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(&fakeLocker{})), &releases{}, func(ctx workflow.Context) error {
		ctx = workflows.Guard(ctx, account)
		debit := workflow.ExecuteActivity(ctx, "Debit")
		chained, settable := workflow.NewFuture(ctx)
		settable.Chain(workflow.ExecuteActivity(ctx, "Credit"))
		var got []string
		note := func(f workflow.Future) {
			var name string
			if err := f.Get(ctx, &name); err == nil {
				got = append(got, name)
			}
		}
		selector := workflow.NewSelector(ctx).AddFuture(debit, note).AddFuture(chained, note)
		selector.Select(ctx)
		selector.Select(ctx)
		if len(got) != 2 {
			return errors.New("a future did not complete")
		}
		return nil
	}))
}

func TestHeaders_OfOtherInterceptors_AreKept(t *testing.T) {
	t.Parallel()
	for _, ourselvesFirst := range []bool{true, false} {
		header := make(chan map[string]*commonpb.Payload, 1)
		other := &spy{
			scheduled: func(ctx workflow.Context, _ string) {
				interceptor.WorkflowHeader(ctx)["other"] = &commonpb.Payload{Data: []byte("theirs")}
			},
			entered: func(ctx context.Context) { header <- interceptor.Header(ctx) },
		}
		list := []interceptor.WorkerInterceptor{other, with(&fakeLocker{})}
		if ourselvesFirst {
			list = []interceptor.WorkerInterceptor{with(&fakeLocker{}), other}
		}
		require.NoError(t, runWorkflow(t, workflowEnv(t, list...), &releases{}, func(ctx workflow.Context) error {
			return step(workflows.Guard(ctx, account), "Debit")
		}))
		got := <-header
		require.Contains(t, got, "other")
		require.Contains(t, got, wire.HeaderKey)
	}
}

func TestWorkflow_InterceptorInstalledTwice_UpdatesShareTheState(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	env := workflowEnv(t, with(l), with(l))
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow("pay", "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { panic(err) }, OnComplete: func(any, error) {},
		})
	}, time.Second)
	require.NoError(t, runWorkflow(t, env, &releases{}, func(ctx workflow.Context) error {
		paid := false
		err := workflow.SetUpdateHandler(ctx, "pay", func(uctx workflow.Context) error {
			uctx = workflow.WithActivityOptions(uctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			err := step(workflows.Guard(uctx, account), "Credit")
			paid = true
			return err
		})
		if err != nil {
			return err
		}
		if err := step(workflows.Guard(ctx, account), "Debit"); err != nil {
			return err
		}
		return workflow.Await(ctx, func() bool { return paid })
	}))
	require.Equal(t, "default-test-run-id/1/Debit", l.asked()[0].Part)
	require.Equal(t, "default-test-run-id/2/Credit", l.asked()[1].Part)
}

// Nothing is scheduled, and the error names the alternatives.
func TestLocalActivity_UnderLocks_IsRefused(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
		ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
		guarded := workflows.Guard(ctx, account)
		err := workflow.ExecuteLocalActivity(guarded, "Debit").Get(ctx, nil)
		var invalid *lockcore.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "workflow.ExecuteActivity") {
			return fmt.Errorf("it was not refused: %w", err)
		}
		return workflow.ExecuteLocalActivity(workflows.Unguarded(guarded), "Debit").Get(ctx, nil)
	}))
	require.Empty(t, l.asked())
}

func TestOwnActivities_UnderLocks_AreNotGuarded(t *testing.T) {
	t.Parallel()
	l, r := &fakeLocker{}, &releases{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), r, func(ctx workflow.Context) error {
		ctx = workflows.Guard(ctx, account)
		return workflow.ExecuteActivity(ctx, wire.ActivityRelease, wire.ReleaseParams{Resources: []string{"x"}}).Get(ctx, nil)
	}))
	require.Empty(t, l.asked())
	require.Len(t, r.released, 1)
}

func TestSessions_UnderLocks_OnlyTheirStepsAreGuarded(t *testing.T) {
	t.Parallel()
	l := &fakeLocker{}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l)), &releases{}, func(ctx workflow.Context) error {
		ctx, err := workflow.CreateSession(workflows.Guard(ctx, account), &workflow.SessionOptions{
			CreationTimeout: time.Minute, ExecutionTimeout: time.Minute,
		})
		if err != nil {
			return err
		}
		defer workflow.CompleteSession(ctx)
		return step(ctx, "Debit")
	}))
	require.Len(t, l.asked(), 1)
	require.Equal(t, "default-test-run-id/1/Debit", l.asked()[0].Part)
}

// UserActivities has a method of the same name as one of Lockstep's own.
type UserActivities struct{ called chan struct{} }

// Release is not ours.
func (u *UserActivities) Release(context.Context) error {
	close(u.called)
	return nil
}

func TestUsersActivity_CalledRelease_IsNotReplaced(t *testing.T) {
	t.Parallel()
	env := workflowEnv(t, with(&fakeLocker{}))
	user := &UserActivities{called: make(chan struct{})}
	env.RegisterActivity(user)
	require.NoError(t, runWorkflow(t, env, &releases{}, func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(ctx, user.Release).Get(ctx, nil)
	}))
	<-user.called
}

// The SDK runs every coroutine after every event. With one for each open step, the time of a replay
// grew with the square of their number.
func TestWhenReady_ManySteps_ShareOneCoroutine(t *testing.T) {
	t.Parallel()
	const steps = 20
	l, started := &fakeLocker{}, []string{}
	count := &spy{coroutine: func(name string) {
		if name != "" && name != "root" { // the SDK's own
			started = append(started, name)
		}
	}}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l), count), &releases{}, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			all := make([]workflow.Future, 0, 2*steps)
			for range steps {
				all = append(all, workflow.ExecuteActivity(ctx, "Debit"), s.Step(ctx, "Debit", "Credit"))
			}
			for _, step := range all {
				if err := step.Get(ctx, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}))
	require.Len(t, l.asked(), 2*steps)
	require.Equal(t, []string{"lockstep-steps", "lockstep-release"}, started)
}
