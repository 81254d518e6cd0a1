package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/cli/repair"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A saga is in flight while its collection is dropped. The step that carries the ID of that collection waits, whoever takes it, until an
// operator has recorded that the collection is replaced. Then the saga is undone, under locks of the new collection.
func TestSaga_CollectionReplaced_IsUndone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second func(ctx workflow.Context, s *workflows.Saga) error
		busy   lockcore.Resource // held by another party
		is     func(*workflowpb.PendingActivityInfo) bool
	}{
		"StepInBackOff": {
			second: func(ctx workflow.Context, s *workflows.Saga) error {
				ctx = workflow.WithRetryPolicy(workflows.Guard(ctx, account), temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1})
				return s.Step(ctx, "Fail", "Undo", "second").Get(ctx, nil)
			},
			is: func(a *workflowpb.PendingActivityInfo) bool {
				return a.GetActivityType().GetName() == "Fail" && a.GetAttempt() > 1
			},
		},
		"StepParked": {
			second: func(ctx workflow.Context, s *workflows.Saga) error {
				return s.Step(workflows.Guard(ctx, account2), "Note", "Undo", "second").Get(ctx, nil)
			},
			busy: account2,
			is:   isWaiting,
		},
		"LockWaits": {
			second: func(ctx workflow.Context, _ *workflows.Saga) error {
				return under(ctx, locks(account2), func(*workflows.Hold) error { return do(ctx, "Nothing") })
			},
			busy: account2,
			is: func(a *workflowpb.PendingActivityInfo) bool {
				return a.GetActivityType().GetName() == "lockstep.Acquire"
			},
		},
		"BetweenSteps": {
			second: func(ctx workflow.Context, s *workflows.Saga) error {
				if err := do(workflows.Unguarded(ctx), "Pause"); err != nil {
					return err
				}
				return s.Step(workflows.Guard(ctx, account), "Note", "Undo", "second").Get(ctx, nil)
			},
			is: func(a *workflowpb.PendingActivityInfo) bool {
				return a.GetActivityType().GetName() == "Pause" && a.GetAttempt() > 1
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.Step(workflows.Guard(ctx, account), "Note", "Undo", "first").Get(ctx, nil); err != nil {
					return err
				}
				return test.second(ctx, s)
			})
			down := func(ctx context.Context) error {
				if activity.GetInfo(ctx).Attempt < 4 {
					return errors.New("down")
				}
				return nil
			}
			activities := map[string]any{"Fail": func(context.Context) error { return errors.New("down") }, "Pause": down}
			first := b.work(t, sdkworker.Options{}, activities)
			old, err := b.locker.CollectionID(t.Context())
			require.NoError(t, err)
			if test.busy.Name != "" {
				_, err := b.locker.Acquire(t.Context(), lockcore.Request{LockID: "other", Resources: []lockcore.Resource{test.busy}})
				require.NoError(t, err)
			}
			run := b.start(t, "W")
			b.untilActivity(t, run, test.is, "it does not get so far")
			first.Stop()
			coll := testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection)
			require.NoError(t, coll.Drop(t.Context()))

			again, err := lockcore.New(coll, lockcore.Config{})
			require.NoError(t, err)
			closeAtEnd(t, again)
			b.locker, b.plugin = again, newPlugin(t, worker.Options{Locker: again})
			b.work(t, sdkworker.Options{}, activities)
			if name != "BetweenSteps" {
				b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
					failure := a.GetLastFailure()
					return failure.GetApplicationFailureInfo().GetType() == "lockstep.OtherCollection" &&
						strings.Contains(failure.GetMessage(), "lockstep replaces "+old+" --reason")
				}, "it was not refused")
			}
			require.NoError(t, repair.Replace(t.Context(), coll, old, "dropped for the test"))
			_, err = b.end(t, run)
			require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
			require.Contains(t, b.read(), "undid first")
			require.NotContains(t, b.read(), "second")
			b.requireFree(t, account.Name)
		})
	}
}

func isWaiting(a *workflowpb.PendingActivityInfo) bool {
	return a.GetActivityType().GetName() == "lockstep.Wait"
}

// A compensation that waits for its lock continues in the new collection, and so does a step of scope step.
func TestWait_CollectionReplaced_RequestThatReacquiresAsksAgain(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx workflow.Context) error{
		"Compensation": func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.Step(workflows.Guard(ctx, account), "Nothing", "Undo", "step").Get(ctx, nil); err != nil {
					return err
				}
				receive(ctx, "lost")
				return errors.New("changed its mind")
			})
		},
		"ScopeStep": func(ctx workflow.Context) error {
			receive(ctx, "lost")
			l := workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeStep}
			return workflow.ExecuteActivity(workflows.WithLocks(ctx, l), "Undo", "step").Get(ctx, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", fn)
			w := b.work(t, sdkworker.Options{}, nil)
			old, err := b.locker.CollectionID(t.Context())
			require.NoError(t, err)
			run := b.start(t, "W")
			if name == "Compensation" {
				require.Eventually(t, func() bool { return len(b.holders(t, account.Name)) == 1 }, within, lookEvery)
				b.forceRelease(t, run)
			}
			_, err = b.locker.Acquire(t.Context(), lockcore.Request{LockID: "other", Resources: []lockcore.Resource{account}})
			require.NoError(t, err)
			b.signal(t, run, "lost")
			b.untilActivity(t, run, isWaiting, "it does not wait")
			w.Stop()
			coll := testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection)
			require.NoError(t, coll.Drop(t.Context()))
			again, err := lockcore.New(coll, lockcore.Config{})
			require.NoError(t, err)
			closeAtEnd(t, again)
			require.NoError(t, repair.Replace(t.Context(), coll, old, "dropped for the test"))
			b.locker, b.plugin = again, newPlugin(t, worker.Options{Locker: again})
			b.work(t, sdkworker.Options{}, nil)
			_, err = b.end(t, run)
			require.NotErrorIs(t, err, lockcore.ErrLost)
			require.Equal(t, []string{"undid step"}, b.read())
		})
	}
}

// Workers that run all the time notice a collection that was dropped, emptied or cleared, and need no restart.
func TestSaga_CollectionChangesUnderRunningWorkers_NextSagaRuns(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, b *bundle){
		"Drop": func(t *testing.T, b *bundle) {
			coll := testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection)
			require.NoError(t, coll.Drop(t.Context()))
		},
		"Clear": func(t *testing.T, b *bundle) {
			other, err := lockcore.New(testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), lockcore.Config{})
			require.NoError(t, err)
			defer func() { _ = other.Close(context.Background()) }()
			_, err = repair.Clear(t.Context(), other, testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), "restored")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.Step(workflows.Guard(ctx, account), "Note", "Undo", "step").Get(ctx, nil); err != nil {
					return err
				}
				receive(ctx, "go on")
				return s.Step(workflows.Guard(ctx, account), "Nothing", "Undo", "next").Get(ctx, nil)
			})
			b.serve(t)
			old, err := b.locker.CollectionID(t.Context())
			require.NoError(t, err)
			run := b.start(t, "W")
			b.untilWritten(t, 1)
			change(t, b)
			b.signal(t, run, "go on")
			if name != "Clear" {
				require.NoError(t, repair.Replace(t.Context(), testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), old, "emptied for the test"))
			}
			_, err = b.end(t, run)
			require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
			require.Contains(t, b.read(), "undid step")
			next := b.start(t, "W")
			b.signal(t, next, "go on")
			b.succeed(t, next)
		})
	}
}
