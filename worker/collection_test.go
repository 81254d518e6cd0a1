package worker_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/cli/repair"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// inFlight is a saga of two steps that is in flight when its collection is dropped. The first step has run.
type inFlight struct {
	second func(ctx workflow.Context, s *workflows.Saga) error
	// busy is held by another party.
	busy lockcore.Resource
	// is recognizes the activity during which the collection is dropped.
	is func(*workflowpb.PendingActivityInfo) bool
	// refused is set if the activity carries the ID of the dropped collection.
	refused bool
}

var (
	stepInBackOff = inFlight{
		second: func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflow.WithRetryPolicy(workflows.Guard(ctx, account), temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1})
			return s.Step(ctx, "Fail", "Undo", "second").Get(ctx, nil)
		},
		is: isRepeated("Fail"), refused: true,
	}
	stepParked = inFlight{
		second: func(ctx workflow.Context, s *workflows.Saga) error {
			return s.Step(workflows.Guard(ctx, account2), "Note", "Undo", "second").Get(ctx, nil)
		},
		busy: account2, is: isWaiting, refused: true,
	}
	lockWaits = inFlight{
		second: func(ctx workflow.Context, s *workflows.Saga) error {
			return cmp.Or(under(ctx, locks(account2), func(*workflows.Hold) error { return do(ctx, "Nothing") }), s.Verify(ctx))
		},
		busy: account2, refused: true,
		is: func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetActivityType().GetName() == "lockstep.Acquire"
		},
	}
	betweenSteps = inFlight{
		second: func(ctx workflow.Context, s *workflows.Saga) error {
			if err := do(workflows.Unguarded(ctx), "Pause"); err != nil {
				return err
			}
			return s.Step(workflows.Guard(ctx, account), "Note", "Undo", "second").Get(ctx, nil)
		},
		is: isRepeated("Pause"),
	}
)

// A step that carries the ID of a dropped collection waits, on every worker, until an operator has recorded that the collection is
// replaced. Then the saga is undone, under locks of the new collection.
func TestSaga_CollectionReplaced_IsUndone(t *testing.T) {
	t.Parallel()
	for name, saga := range map[string]inFlight{"StepInBackOff": stepInBackOff, "StepParked": stepParked, "LockWaits": lockWaits, "BetweenSteps": betweenSteps} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.Step(workflows.Guard(ctx, account), "Note", "Undo", "first").Get(ctx, nil); err != nil {
					return err
				}
				return saga.second(ctx, s)
			})
			first := b.work(t, sdkworker.Options{}, failing())
			if saga.busy.Name != "" {
				b.othersHold(t, saga.busy)
			}
			run := b.start(t, "W")
			b.untilActivity(t, run, saga.is, "it does not get so far")
			first.Stop()
			old := b.collectionID(t)
			b.dropCollection(t)
			b.work(t, sdkworker.Options{}, failing())
			if saga.refused {
				b.untilActivity(t, run, isRefused(old), "it was not refused")
			}
			b.replace(t, old)
			b.requireLostAndUndone(t, run, "first")
			require.NotContains(t, b.read(), "second")
			b.requireFree(t, account.Name)
		})
	}
}

// failing are activities that fail: Fail always, and Pause three times.
func failing() map[string]any {
	return map[string]any{
		"Fail": func(context.Context) error { return errors.New("down") },
		"Pause": func(ctx context.Context) error {
			if activity.GetInfo(ctx).Attempt < 4 {
				return errors.New("down")
			}
			return nil
		},
	}
}

func isRepeated(name string) func(*workflowpb.PendingActivityInfo) bool {
	return func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetActivityType().GetName() == name && a.GetAttempt() > 1
	}
}

func isWaiting(a *workflowpb.PendingActivityInfo) bool {
	return a.GetActivityType().GetName() == "lockstep.Wait"
}

// isRefused recognizes an activity that was refused because it carries the ID of another collection. The refusal names the command that helps.
func isRefused(carries string) func(*workflowpb.PendingActivityInfo) bool {
	return func(a *workflowpb.PendingActivityInfo) bool {
		failure := a.GetLastFailure()
		return failure.GetApplicationFailureInfo().GetType() == "lockstep.OtherCollection" &&
			strings.Contains(failure.GetMessage(), "lockstep replaces "+carries+" --reason")
	}
}

func (b *bundle) lockCollection(t *testing.T) *mongo.Collection {
	t.Helper()
	return testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection)
}

func (b *bundle) collectionID(t *testing.T) string {
	t.Helper()
	id, err := b.locker.CollectionID(t.Context())
	require.NoError(t, err)
	return id
}

// othersHold makes another party hold a resource.
func (b *bundle) othersHold(t *testing.T, r lockcore.Resource) {
	t.Helper()
	_, err := b.locker.Acquire(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other"}, Resources: []lockcore.Resource{r}})
	require.NoError(t, err)
}

// dropCollection drops the collection. The bundle's next workers are new processes.
func (b *bundle) dropCollection(t *testing.T) {
	t.Helper()
	require.NoError(t, b.lockCollection(t).Drop(t.Context()))
	b.reopen(t)
}

// reopen makes the bundle's next workers new processes, with the collection of the bundle's database.
func (b *bundle) reopen(t *testing.T) {
	t.Helper()
	locker, err := lockcore.New(b.lockCollection(t), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, locker.Steps())
	b.locker, b.plugin = locker.Steps(), newPlugin(t, worker.Options{Locker: locker})
}

// replace records that the collection replaces another one.
func (b *bundle) replace(t *testing.T, old string) {
	t.Helper()
	require.NoError(t, repair.Replace(t.Context(), b.lockCollection(t), old, "dropped for the test"))
}

// clear releases everything, as an operator does.
func (b *bundle) clear(t *testing.T) {
	t.Helper()
	operator, err := lockcore.New(b.lockCollection(t), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, operator.Steps())
	_, err = repair.Clear(t.Context(), operator.Steps(), b.lockCollection(t), "restored")
	require.NoError(t, err)
}

// requireLostAndUndone requires that a saga fails since it has lost its locks, and that the step was undone.
func (b *bundle) requireLostAndUndone(t *testing.T, run client.WorkflowRun, step string) {
	t.Helper()
	_, err := b.end(t, run)
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrLost)
	require.Contains(t, b.read(), "undid "+step)
}

// All workers are stopped while a saga is in flight, and started with the address of another collection, which is empty or has a copy of
// the documents. After the commands that docs/production.md names the saga is undone, and its resources are free.
func TestSaga_LocksMoved_IsUndone(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]struct {
		copies bool
		then   func(t *testing.T, b *bundle, old string)
	}{
		"Empty": {false, func(t *testing.T, b *bundle, old string) { b.replace(t, old) }},
		"WithDocuments": {true, func(t *testing.T, b *bundle, old string) {
			require.Equal(t, old, b.collectionID(t))
			b.clear(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.Step(workflows.Guard(ctx, account), "Note", "Undo", "first").Get(ctx, nil); err != nil {
					return err
				}
				receive(ctx, "go on")
				return s.Step(workflows.Guard(ctx, account), "Note", "Undo", "second").Get(ctx, nil)
			})
			first := b.serve(t)
			run := b.start(t, "W")
			b.untilWritten(t, 1)
			first.Stop()
			old, from := b.collectionID(t), b.lockCollection(t)
			b.database = testenv.Mongo(t).Name()
			if move.copies {
				copyDocuments(t, from, b.lockCollection(t))
			}
			b.reopen(t)
			b.serve(t)
			require.NoError(t, b.locker.CreateIndexes(t.Context()))
			move.then(t, b, old)
			b.signal(t, run, "go on")
			b.requireLostAndUndone(t, run, "first")
			require.NotContains(t, b.read(), "second")
			b.requireFree(t, account.Name)
		})
	}
}

func copyDocuments(t *testing.T, from, to *mongo.Collection) {
	t.Helper()
	cursor, err := from.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var all []bson.Raw
	require.NoError(t, cursor.All(t.Context(), &all))
	_, err = to.InsertMany(t.Context(), all)
	require.NoError(t, err)
}

// A compensation that waits for its lock continues in the new collection, and so does a step of scope step.
func TestWait_CollectionReplaced_RequestThatReacquiresAsksAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		workflow func(ctx workflow.Context) error
		before   func(*testing.T, *bundle, client.WorkflowRun)
	}{
		"Compensation": {compensatesWhenTold, func(t *testing.T, b *bundle, run client.WorkflowRun) {
			require.Eventually(t, func() bool { return len(b.holders(t, account.Name)) == 1 }, within, lookEvery)
			b.forceRelease(t, run)
		}},
		"ScopeStep": {stepsWhenTold, func(*testing.T, *bundle, client.WorkflowRun) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.workflow("W", test.workflow)
			first := b.work(t, sdkworker.Options{}, nil)
			run := b.start(t, "W")
			test.before(t, b, run)
			b.othersHold(t, account)
			b.signal(t, run, "lost")
			b.untilActivity(t, run, isWaiting, "it does not wait")
			first.Stop()
			old := b.collectionID(t)
			b.dropCollection(t)
			b.replace(t, old)
			b.work(t, sdkworker.Options{}, nil)
			_, err := b.end(t, run)
			require.NotErrorIs(t, err, lockcore.ErrLost)
			require.Equal(t, []string{"undid step"}, b.read())
		})
	}
}

func compensatesWhenTold(ctx workflow.Context) error {
	return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
		if err := s.Step(workflows.Guard(ctx, account), "Nothing", "Undo", "step").Get(ctx, nil); err != nil {
			return err
		}
		receive(ctx, "lost")
		return errors.New("changed its mind")
	})
}

func stepsWhenTold(ctx workflow.Context) error {
	receive(ctx, "lost")
	l := workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeStep}
	return workflow.ExecuteActivity(workflows.WithLocks(ctx, l), "Undo", "step").Get(ctx, nil)
}

// Workers that run all the time notice a collection that was dropped, emptied or cleared, and need no restart.
func TestSaga_CollectionChangesUnderRunningWorkers_NextSagaRuns(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, b *bundle, old string){
		"Drop": func(t *testing.T, b *bundle, old string) {
			require.NoError(t, b.lockCollection(t).Drop(t.Context()))
			b.replace(t, old)
		},
		"DeleteMany": func(t *testing.T, b *bundle, old string) {
			_, err := b.lockCollection(t).DeleteMany(t.Context(), bson.D{})
			require.NoError(t, err)
			b.replace(t, old)
		},
		"Clear": func(t *testing.T, b *bundle, _ string) { b.clear(t) },
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
			old := b.collectionID(t)
			run := b.start(t, "W")
			b.untilWritten(t, 1)
			change(t, b, old)
			b.signal(t, run, "go on")
			b.requireLostAndUndone(t, run, "step")
			next := b.start(t, "W")
			b.signal(t, next, "go on")
			b.succeed(t, next)
		})
	}
}

// A worker keeps its locks in another collection than the workflow: in one with locks, or in an empty one, as after a wrong name of a
// database or of a host. It starts before all others, or while the saga is in flight. It takes the saga's step, and must not run it.
func TestStep_WorkerHasAnotherCollection_RunsNowhereElse(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Empty", "WithLocks"} {
		for _, order := range []string{"First", "Last"} {
			t.Run(kind+order, func(t *testing.T) {
				t.Parallel()
				b, astray := setup(t), setup(t)
				astray.queue = b.queue
				if kind == "WithLocks" {
					astray.othersHold(t, account2)
				}
				b.saga("W", func(ctx workflow.Context, s *workflows.Saga) error {
					ctx = workflow.WithRetryPolicy(workflows.Guard(ctx, account), temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1})
					receive(ctx, "go on")
					return s.Step(ctx, "Note", "Undo", "step").Get(ctx, nil)
				})
				onlyActivities := sdkworker.Options{DisableWorkflowWorker: true}
				if order == "First" {
					astray.work(t, onlyActivities, nil)
				}
				b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
				run := b.start(t, "W")
				if order == "Last" {
					astray.work(t, onlyActivities, nil)
				}
				b.signal(t, run, "go on")
				b.untilActivity(t, run, isRefused(b.collectionID(t)), "it was not refused")
				b.work(t, onlyActivities, nil)
				b.succeed(t, run)
				require.Equal(t, []string{"step"}, b.read())
				require.Empty(t, astray.read())
			})
		}
	}
}
