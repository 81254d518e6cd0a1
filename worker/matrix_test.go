package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// matrixScene brings a run to one of Lockstep's own activities. The activity stays pending until its worker is started; in a busy scene the
// account is held by another party until then.
type matrixScene struct {
	busy bool
	run  func(ctx workflow.Context, l workflows.Locks) error
}

var errScene = errors.New("the saga fails")

var scenes = map[string]matrixScene{
	"Wait": {busy: true, run: func(ctx workflow.Context, l workflows.Locks) error {
		return do(workflows.WithLocks(ctx, l), "Nothing")
	}},
	"Acquire": {busy: true, run: func(ctx workflow.Context, l workflows.Locks) error {
		hold, err := workflows.Lock(ctx, l)
		if err != nil {
			return err
		}
		return hold.Release(ctx)
	}},
	"Release": {run: func(ctx workflow.Context, l workflows.Locks) error {
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error { return do(workflows.WithLocks(ctx, l), "Nothing") })
	}},
	"Leave": {busy: true, run: func(ctx workflow.Context, l workflows.Locks) error {
		l.MaxWait = time.Millisecond
		return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error { return do(workflows.WithLocks(ctx, l), "Nothing") })
	}},
	"Verify": {run: func(ctx workflow.Context, l workflows.Locks) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := do(workflows.WithLocks(ctx, l), "Nothing"); err != nil {
				return err
			}
			return s.Verify(ctx)
		})
	}},
	"Bar": {run: func(ctx workflow.Context, l workflows.Locks) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			if err := s.Step(workflows.WithLocks(ctx, l), "Nothing", "Nothing").Get(ctx, nil); err != nil {
				return err
			}
			return errScene
		})
	}},
}

// condition is a situation in which one of Lockstep's own activities is scheduled.
type condition struct {
	// options are those of the client of the run's workers.
	options client.Options
	// context changes the context of the scene.
	context func(ctx workflow.Context) (workflow.Context, error)
	// locks are those of the scene, in addition to the account.
	locks []lockcore.Resource
	// during happens while the activity is pending.
	during func(m *matrixRun, t *testing.T)
	// refused is set if nothing is scheduled, and cancels if the run is cancelled.
	refused, cancels bool
	// replays is set if the history can be replayed without what the condition needs.
	replays bool
}

// matrixRun is one cell of the matrix.
type matrixRun struct {
	*bundle
	scene string
	run   client.WorkflowRun
}

func conditions() map[string]condition {
	return map[string]condition{
		"nothing else":          {replays: true},
		"reset while pending":   {during: (*matrixRun).resetPending, replays: true},
		"a hundred long names":  {locks: hundred(512)[:99], replays: true},
		"invalid name":          {locks: []lockcore.Resource{lockcore.Exclusive(strings.Repeat("x", 513))}, refused: true, replays: true},
		"failing codec":         {options: client.Options{DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), &flaky{})}},
		"other converter":       {context: otherConverter, replays: true},
		"context propagator":    {options: client.Options{ContextPropagators: []workflow.ContextPropagator{tenants{}}}, context: ofATenant, replays: true},
		"session":               {context: inASession, replays: true},
		"cancelled":             {during: func(m *matrixRun, t *testing.T) { t.Helper(); m.cancel(t, m.run) }, cancels: true, replays: true},
		"continue-as-new":       {during: func(m *matrixRun, t *testing.T) { t.Helper(); m.signal(t, m.run, "next") }, replays: true},
		"worker without plugin": {during: (*matrixRun).takenWithoutPlugin, replays: true},
	}
}

func otherConverter(ctx workflow.Context) (workflow.Context, error) {
	return workflow.WithDataConverter(ctx, converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{})), nil
}

func ofATenant(ctx workflow.Context) (workflow.Context, error) {
	return workflow.WithValue(ctx, tenantKey{}, "a"), nil
}

func inASession(ctx workflow.Context) (workflow.Context, error) {
	return workflow.CreateSession(ctx, &workflow.SessionOptions{CreationTimeout: time.Minute, ExecutionTimeout: time.Hour})
}

// flaky is a codec that fails every third time, four times.
type flaky struct{ calls, failures atomic.Int64 }

func (f *flaky) Encode(p []*commonpb.Payload) ([]*commonpb.Payload, error) { return p, f.fail() }

func (f *flaky) Decode(p []*commonpb.Payload) ([]*commonpb.Payload, error) { return p, f.fail() }

func (f *flaky) fail() error {
	if f.calls.Add(1)%3 == 0 && f.failures.Add(1) <= 4 {
		return errors.New("the codec is away")
	}
	return nil
}

// resetPending makes a run of which the pending activity is dispatched again.
func (m *matrixRun) resetPending(t *testing.T) {
	t.Helper()
	before := m.tasksDone(t)
	m.signal(t, m.run, "tick")
	require.Eventually(t, func() bool { return m.tasksDone(t) > before }, within, lookEvery, "no workflow task follows")
	m.run = m.reset(t, m.run, m.tasksDone(t))
}

func (m *matrixRun) tasksDone(t *testing.T) (n int) {
	t.Helper()
	for _, e := range m.historyOf(t, m.run.GetID(), m.run.GetRunID()).GetEvents() {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			n++
		}
	}
	return n
}

// takenWithoutPlugin lets a worker without the plugin take the activity, which it does not know.
func (m *matrixRun) takenWithoutPlugin(t *testing.T) {
	t.Helper()
	if m.scene == "Wait" { // it runs on the queue of the step, whose worker has the plugin
		return
	}
	w := sdkworker.New(m.client, m.queue+"-own", sdkworker.Options{DisableWorkflowWorker: true, Plugins: []sdkworker.Plugin{}})
	w.RegisterActivity(nothing)
	require.NoError(t, w.Start())
	m.untilActivity(t, m.run, func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetActivityType().GetName() == "lockstep."+m.scene && a.GetLastFailure() != nil
	}, "the worker does not take it")
	w.Stop()
}

// TestMatrix_OwnActivities brings each of Lockstep's own activities together with each condition. Whatever happens, the run ends, the locks
// are free, and no workflow task fails that need not.
func TestMatrix_OwnActivities(t *testing.T) {
	t.Parallel()
	for name, sc := range scenes {
		for when, c := range conditions() {
			t.Run(name+"/"+when, func(t *testing.T) {
				t.Parallel()
				playCell(t, name, sc, c)
			})
		}
	}
}

func playCell(t *testing.T, name string, sc matrixScene, c condition) {
	t.Helper()
	b := setup(t)
	m := &matrixRun{bundle: b, scene: name}
	b.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker, TaskQueue: b.queue + "-own"})
	c.options.Plugins = []client.Plugin{b.plugin}
	workers := b.on(b.queue)
	workers.reach(t, c.options)
	if c.options.DataConverter != nil {
		testenv.AllowFailedTasks(t, b.queue, "the codec is away")
	}
	b.workflow("W", func(ctx workflow.Context) error { return cell(ctx, sc, c) })
	workers.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{}, EnableSessionWorker: true}, nil)
	own := workers.on(b.queue + "-own")
	start := func() {
		own.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{}, DisableWorkflowWorker: true}, nil)
	}

	leave := func() {}
	if sc.busy {
		other := b.taken(t, account)
		leave = func() { require.NoError(t, other.Leave(t.Context())) }
	}
	m.run = b.start(t, "W")
	if !c.refused {
		if name == "Leave" && sc.busy { // its Wait is taken by the worker of the step
			b.untilActivity(t, m.run, func(a *workflowpb.PendingActivityInfo) bool { return a.GetActivityType().GetName() == "lockstep.Leave" }, "it does not leave")
		} else {
			b.untilActivity(t, m.run, func(a *workflowpb.PendingActivityInfo) bool { return a.GetActivityType().GetName() == "lockstep."+name }, "it is not pending")
		}
		if c.during != nil {
			c.during(m, t)
		}
	}
	leave()
	start()
	var gone *serviceerror.NotFound // a run that was cancelled, or has continued as new
	if err := b.client.SignalWorkflow(t.Context(), m.run.GetID(), "", "end", nil); !errors.As(err, &gone) {
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	err := b.client.GetWorkflow(ctx, m.run.GetID(), "").Get(ctx, nil)
	require.NoError(t, ctx.Err(), "the workflow did not end")
	switch {
	case c.refused:
		require.ErrorIs(t, workflows.LockError(err), lockcore.ErrInvalid)
	case !c.cancels:
		require.NoError(t, err)
	}
	b.requireFree(t, account.Name)
	if c.replays {
		b.replay(t, b.historyOf(t, m.run.GetID(), m.run.GetRunID()))
	}
}

// cell plays a scene in a coroutine, while the workflow waits for signals: "next" continues it as new, "end" ends it when the scene has ended.
func cell(ctx workflow.Context, sc matrixScene, c condition) error {
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		return nil
	}
	ended, result := false, error(nil)
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { ended = true }()
		if c.context != nil {
			if ctx, result = c.context(ctx); result != nil {
				return
			}
		}
		result = sc.run(ctx, workflows.Locks{Resources: append([]lockcore.Resource{account}, c.locks...)})
	})
	has := func(name string) bool { return workflow.GetSignalChannel(ctx, name).Len() > 0 }
	err := workflow.Await(ctx, func() bool { return has("next") || ended && has("end") })
	if err == nil && has("next") {
		return workflow.NewContinueAsNewError(ctx, "W")
	}
	disconnected, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if failed := workflow.Await(disconnected, func() bool { return ended }); failed != nil {
		return failed
	}
	if errors.Is(result, errScene) || errors.Is(result, lockcore.ErrBusy) {
		result = nil
	}
	if result == nil || err == nil {
		return result
	}
	return fmt.Errorf("%w; and %w", err, result)
}
