package worker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// namesScene is a workflow whose names of resources begin with a planted text.
type namesScene struct {
	run func(ctx workflow.Context, planted string) error
	// blocked is set if another party holds the scene's resource until the workflow waits for it.
	blocked bool
	// during, if not nil, is called while the workflow waits.
	during func(t *testing.T, b *bundle, run client.WorkflowRun, planted string)
	// failure is the type of the workflow's failure, if it fails.
	failure string
}

func named(planted, name string) lockcore.Resource { return lockcore.Exclusive(planted + "/" + name) }

var namesScenes = map[string]namesScene{
	"guard": {run: func(ctx workflow.Context, planted string) error {
		return do(workflows.Guard(ctx, named(planted, "guard")), "Nothing")
	}},
	"saga parked": {blocked: true, run: func(ctx workflow.Context, planted string) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			return s.Step(workflows.Guard(ctx, named(planted, "saga parked")), "Nothing", "Nothing").Get(ctx, nil)
		})
	}},
	"lock waits": {blocked: true, run: func(ctx workflow.Context, planted string) error {
		return under(ctx, locks(named(planted, "lock waits")), func(h *workflows.Hold) error { return h.Verify(ctx) })
	}},
	"rule": {blocked: true, run: func(ctx workflow.Context, _ string) error { return do(ctx, "Ruled") }},
	"waits too long": {failure: "lockstep.Busy", run: func(ctx workflow.Context, planted string) error {
		l := locks(named(planted, "occupied"))
		l.MaxWait = time.Millisecond
		return do(workflows.WithLocks(ctx, l), "Nothing")
	}},
	"tries": {failure: "lockstep.Busy", run: func(ctx workflow.Context, planted string) error {
		l := locks(named(planted, "occupied"))
		l.Try = true
		return do(workflows.WithLocks(ctx, l), "Nothing")
	}},
	"invalid": {failure: "lockstep.Invalid", run: func(ctx workflow.Context, planted string) error {
		return do(workflows.Guard(ctx, lockcore.Resource{Name: planted + "\x00", Mode: lockcore.ModeExclusive}), "Nothing")
	}},
	"deadlock": {failure: "lockstep.Deadlock", during: blockInADeadlock, run: func(ctx workflow.Context, planted string) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: -1}, func(ctx workflow.Context, _ *workflows.Saga) error {
			if err := do(workflows.Guard(ctx, named(planted, "deadlock")), "Nothing"); err != nil {
				return err
			}
			return do(workflows.Guard(ctx, named(planted, "older's")), "Nothing")
		})
	}},
	"step finds a loss": {failure: "lockstep.Lost", run: func(ctx workflow.Context, planted string) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			ctx = workflows.Guard(ctx, named(planted, "step finds a loss"))
			if err := do(ctx, "Lose"); err != nil {
				return err
			}
			return do(ctx, "Nothing")
		})
	}},
	"Verify finds a loss": {failure: "lockstep.Lost", run: func(ctx workflow.Context, planted string) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := do(workflows.Guard(ctx, named(planted, "Verify finds a loss")), "Lose"); err != nil {
				return err
			}
			return s.Verify(ctx)
		})
	}},
	"step may still run": {failure: "TimeoutError", run: func(ctx workflow.Context, planted string) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, named(planted, "step may still run"))
			if err := s.CompensateWith(ctx, "Nothing"); err != nil {
				return err
			}
			return do(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
				StartToCloseTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
			}), "Slow")
		})
	}},
	"hands over": {run: func(ctx workflow.Context, planted string) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error {
			err := do(workflows.Guard(ctx, named(planted, "hands over")), "Nothing")
			if err == nil && workflow.GetInfo(ctx).ContinuedExecutionRunID == "" {
				err = workflows.HandOver(ctx, workflow.NewContinueAsNewError(ctx, "hands over"))
			}
			return err
		})
	}},
	"update": {failure: "lockstep.Busy", run: func(ctx workflow.Context, planted string) error {
		l := locks(named(planted, "occupied"))
		l.Try = true
		err := workflow.SetUpdateHandler(ctx, "lock", func(ctx workflow.Context) error {
			_, err := workflows.Lock(ctx, l)
			return err
		})
		if err != nil {
			return err
		}
		receive(ctx, "go on")
		_, err = workflows.Lock(ctx, l)
		return err
	}, during: func(t *testing.T, b *bundle, run client.WorkflowRun, _ string) {
		t.Helper()
		update, err := b.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: run.GetID(), UpdateName: "lock", WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		require.NoError(t, err)
		_ = failedAs(t, update.Get(t.Context(), nil), "lockstep.Busy")
		b.signal(t, run, "go on")
	}},
}

// blockInADeadlock makes an older party, which holds what the workflow waits for, wait for what the workflow holds.
func blockInADeadlock(t *testing.T, b *bundle, run client.WorkflowRun, planted string) {
	t.Helper()
	b.untilParked(t, run)
	go func() {
		s, err := b.locker.Acquire(context.Background(), lockcore.StepRequest{
			Caller: lockcore.Caller{LockID: "older"}, Started: time.Now().Add(-time.Hour), Resources: []lockcore.Resource{named(planted, "deadlock")},
		})
		if err == nil {
			err = s.Leave(context.Background())
		}
		b.write("older: %v", err)
	}()
	t.Cleanup(func() { b.untilWritten(t, 1) })
}

// With worker.Options.DataConverter, no event of any history shows the name of a resource, nor does what Temporal reports of a workflow
// that waits. Without it, each of these histories does.
func TestDataConverter_NamesOfResources_AreNotInHistories(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]converter.DataConverter{
		"hidden":   converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{}),
		"in clear": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planted := "Planted" + rand.Text()
			b := setup(t)
			b.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker, DataConverter: hide, Rules: []worker.Rule{
				worker.RuleFor("Ruled", func(any) []lockcore.Resource { return []lockcore.Resource{named(planted, "rule")} }),
			}})
			b.reach(t, client.Options{Plugins: []client.Plugin{b.plugin}})
			for name, s := range namesScenes {
				b.workflow(name, func(ctx workflow.Context) error { return s.run(ctx, planted) })
			}
			b.work(t, sdkworker.Options{}, map[string]any{
				"Ruled": nothing, "Lose": b.lose, "Slow": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			})
			_ = b.taken(t, named(planted, "occupied"))
			_, err := b.locker.TryAcquire(t.Context(), lockcore.StepRequest{
				Caller: lockcore.Caller{LockID: "older"}, Started: time.Now().Add(-time.Hour), Resources: []lockcore.Resource{named(planted, "older's")},
			})
			require.NoError(t, err)
			for name, s := range namesScenes {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for what, text := range b.play(t, name, s, planted) {
						i := bytes.Index(text, []byte(planted))
						require.Equal(t, hide == nil, i >= 0, "%s: …%q…", what, text[max(0, i-200):min(len(text), max(0, i)+200)])
					}
				})
			}
		})
	}
}

// lose ends what the step's workflow holds, as an operator would by force.
func (b *bundle) lose(ctx context.Context) error {
	lease := activities.Leases(ctx)[0]
	return b.locker.Release(ctx, lockcore.Release{
		LockID: lease.LockID, Resources: []string{lease.Resource}, Force: true, FirstFence: lease.FirstFence, Reason: "the test wants it",
	})
}

// play runs a scene to its end, and returns what Temporal stores and shows of it.
func (b *bundle) play(t *testing.T, name string, s namesScene, planted string) map[string][]byte {
	t.Helper()
	var other *lockcore.Session
	if s.blocked {
		other = b.taken(t, named(planted, name))
	}
	run := b.start(t, name)
	seen := map[string][]byte{}
	if s.blocked {
		b.untilBusy(t, run)
		seen["describe"] = b.described(t, run)
		require.NoError(t, other.Leave(t.Context()))
	}
	if s.during != nil {
		s.during(t, b, run, planted)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	err := run.Get(ctx, nil)
	require.NoError(t, ctx.Err(), "the workflow did not end")
	switch {
	case s.failure == "":
		require.NoError(t, err)
	case s.failure == "TimeoutError":
		var timeout *temporal.TimeoutError
		require.ErrorAs(t, err, &timeout)
	default:
		_ = failedAs(t, err, s.failure)
		require.ErrorContains(t, workflows.LockError(err), planted, "the client's data converter decodes the details")
	}
	if name != "rule" { // it adds no name to the history
		seen["history"] = b.historyBytes(t, run)
	}
	return seen
}

// historyBytes returns the events of all runs of a workflow. In this encoding, payloads are in clear.
func (b *bundle) historyBytes(t *testing.T, run client.WorkflowRun) []byte {
	t.Helper()
	history := b.historyOf(t, run.GetID(), run.GetRunID())
	last := history.GetEvents()[len(history.GetEvents())-1]
	if first := b.current(t, run); last.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW {
		history.Events = append(history.Events, b.historyOf(t, first.GetID(), first.GetRunID()).GetEvents()...)
	}
	text, err := proto.Marshal(history)
	require.NoError(t, err)
	return text
}

func (b *bundle) described(t *testing.T, run client.WorkflowRun) []byte {
	t.Helper()
	answer, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
	require.NoError(t, err)
	text, err := proto.Marshal(answer)
	require.NoError(t, err)
	return text
}

// An encoded guard reaches a worker without the data converter: the step waits for a worker that can read it, and never runs unlocked.
func TestDataConverter_WorkerLacksIt_StepWaitsForAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hide := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{})
	steps := b.on(b.queue + "-steps")
	b.workflow("W", func(ctx workflow.Context) error {
		return do(workflows.Guard(workflow.WithTaskQueue(ctx, steps.queue), account), "Look")
	})
	b.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker, DataConverter: hide})
	b.reach(t, client.Options{Plugins: []client.Plugin{b.plugin}})
	b.serve(t)
	steps.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker})
	lacking := steps.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	run := b.start(t, "W")
	b.untilActivity(t, run, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetLastFailure().GetApplicationFailureInfo().GetType() == "lockstep.Unavailable"
	}, "it did not fail")
	lacking.Stop()
	require.Empty(t, b.read(), "the step ran without its locks")
	steps.plugin, steps.client = b.plugin, b.client
	steps.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	require.NoError(t, run.Get(t.Context(), nil))
	require.Equal(t, []string{"free: false"}, b.read())
}

// A worker that already has the data converter reads the guards of workers that lack it.
func TestDataConverter_GuardInClear_IsRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	steps := b.on(b.queue + "-steps")
	b.workflow("W", func(ctx workflow.Context) error {
		return do(workflows.Guard(workflow.WithTaskQueue(ctx, steps.queue), account), "Look")
	})
	b.serve(t)
	steps.plugin = newPlugin(t, worker.Options{
		Locker: b.locker.Locker, DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{}),
	})
	steps.reach(t, client.Options{Plugins: []client.Plugin{steps.plugin}})
	steps.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	b.succeed(t, b.start(t, "W"))
	require.Equal(t, []string{"free: false"}, b.read())
}

// Clients and workers in whose histories the names would be readable nevertheless are refused.
func TestDataConverter_NamesWouldShow_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain, hides := converter.GetDefaultDataConverter(), converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{})
	for field, tc := range map[string]struct {
		option converter.DataConverter
		client client.Options
	}{
		"worker.Options.DataConverter":    {plain, client.Options{DataConverter: hides}},
		"client.Options.DataConverter":    {hides, client.Options{DataConverter: plain}},
		"client.Options.FailureConverter": {hides, client.Options{FailureConverter: temporal.GetDefaultFailureConverter()}},
	} {
		tc.client.HostPort = testenv.TemporalAddress(t)
		tc.client.Plugins = []client.Plugin{newPlugin(t, worker.Options{Locker: b.locker.Locker, DataConverter: tc.option})}
		_, err := client.Dial(tc.client)
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
	o := worker.Options{Locker: b.locker.Locker, DataConverter: hides}
	_, err := worker.Interceptor(o)
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	require.ErrorContains(t, err, "client.Options.Plugins")
	require.Panics(t, func() {
		sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{newPlugin(t, o)}})
	}, "the client does not have the plugin")
}
