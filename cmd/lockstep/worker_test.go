package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// served is a worker of the command line, and the locks that it serves.
type served struct {
	*locks
	*process
	client client.Client
	queue  string // of the lock activities
}

// serve starts the command line's worker on a collection of the test's own, and returns when it polls.
func serve(t *testing.T, args ...string) *served {
	t.Helper()
	return serveWith(t, servers(t), args...)
}

// serveWith is serve with the addresses of the servers in env.
func serveWith(t *testing.T, env []string, args ...string) *served {
	t.Helper()
	s := &served{locks: newLocks(t), client: testenv.Temporal(t), queue: testenv.TaskQueue(t)}
	s.process = start(t, env, append([]string{"worker", "--task-queue", s.queue, "--database", s.database}, args...)...)
	require.Contains(t, s.line(t), s.queue)
	return s
}

// stop interrupts the worker, and requires that it ends with exit status 0.
func (s *served) stop(t *testing.T) {
	t.Helper()
	s.interrupt(t)
	require.Zero(t, s.wait(t), &s.stderr)
}

// foreign starts a workflow on a worker without Lockstep, which knows the lock activities only by name and JSON.
func (s *served) foreign(t *testing.T, fn func(ctx workflow.Context, locks workflow.Context) error) client.WorkflowRun {
	t.Helper()
	queue := testenv.TaskQueue(t)
	w := sdkworker.New(s.client, queue, sdkworker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		return fn(ctx, workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: s.queue, StartToCloseTimeout: 30 * time.Second}))
	}, workflow.RegisterOptions{Name: "Foreign"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, "Foreign")
	require.NoError(t, err)
	return run
}

// acquireAccount is a workflow for foreign that acquires account/1.
func acquireAccount(_, locks workflow.Context) error {
	_, err := call(locks, "lockstep.Acquire", map[string]any{"resources": []any{map[string]any{"name": "account/1"}}, "schedule": 1, "holdOnly": true})
	return err
}

func get(t *testing.T, run client.WorkflowRun) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	err := run.Get(ctx, nil)
	require.NoError(t, ctx.Err(), "the workflow did not end")
	return err
}

func call(ctx workflow.Context, name string, in map[string]any) (out map[string]any, err error) {
	err = workflow.ExecuteActivity(ctx, name, in).Get(ctx, &out)
	return out, err
}

func TestWorker_ForeignWorkflow_LocksByName(t *testing.T) {
	t.Parallel()
	s := serve(t, "--janitor", "0")
	resources := []map[string]any{{"name": "account/1"}, {"name": "seats", "mode": "S", "limit": 3}}
	run := s.foreign(t, func(_ workflow.Context, locks workflow.Context) error {
		got, err := call(locks, "lockstep.Acquire", map[string]any{"resources": resources, "schedule": 1, "ttl": "20s", "holdTtl": "1m"})
		if err != nil {
			return err
		}
		leases, ok := got["leases"].([]any)
		if !ok || len(leases) != 2 || strings.Count(fmt.Sprint(got["lockId"]), "/") != 1 {
			return fmt.Errorf("acquire: %v", got)
		}
		if got, err = call(locks, "lockstep.Renew", map[string]any{"leases": leases}); err != nil || len(got["leases"].([]any)) != 2 {
			return fmt.Errorf("renew: %v, %w", got, err)
		}
		if got, err = call(locks, "lockstep.Leave", map[string]any{"leases": leases}); err != nil || len(got) != 0 {
			return fmt.Errorf("leave: %v, %w", got, err)
		}
		got, err = call(locks, "lockstep.Release", map[string]any{"resources": []string{"account/1", "seats"}, "schedule": 1})
		if err != nil || len(got) != 0 {
			return fmt.Errorf("release: %v, %w", got, err)
		}
		_, err = call(locks, "lockstep.Acquire", map[string]any{"resources": resources, "schedule": 1})
		return failsAs(err, "lockstep.Superseded", "released", true)
	})
	require.NoError(t, get(t, run))
	require.Empty(t, s.states(t, "account/1", ""))
	s.stop(t)
}

// failsAs checks an activity's failure: its type, and one of its details.
func failsAs(err error, failure, field string, want any) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != failure {
		return fmt.Errorf("not %s: %w", failure, err)
	}
	var details map[string]any
	if err := app.Details(&details); err != nil || fmt.Sprint(details[field]) != fmt.Sprint(want) {
		return fmt.Errorf("%s: %v, %w", failure, details, err)
	}
	return nil
}

// A busy Acquire without retries stays queued. The workflow waits without a slot, is woken by the worker that grants the
// lock, and asks again.
func TestWorker_ForeignWorkflow_WaitsAndIsWoken(t *testing.T) {
	t.Parallel()
	s := serve(t, "--janitor", "0")
	resource := map[string]any{"name": "account/1"}
	names := []string{"account/1"}
	run := s.foreign(t, func(ctx workflow.Context, locks workflow.Context) error {
		if _, err := call(locks, "lockstep.Acquire", map[string]any{"lockId": "other", "resources": []any{resource}, "holdOnly": true}); err != nil {
			return err
		}
		once := workflow.WithRetryPolicy(locks, temporal.RetryPolicy{MaximumAttempts: 1})
		_, err := call(once, "lockstep.Acquire", map[string]any{"resources": []any{resource}, "schedule": 1, "holdOnly": true})
		if err := failsAs(err, "lockstep.Busy", "position", 1); err != nil {
			return err
		}
		wait := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: s.queue, StartToCloseTimeout: 30 * time.Second, ActivityID: "lockstep-wait-1",
		}), "lockstep.Wait", map[string]any{"resource": resource, "order": map[string]any{"schedule": 1, "attempt": 1}})
		workflow.GetSignalChannel(ctx, "release").Receive(ctx, nil)
		if _, err := call(locks, "lockstep.Release", map[string]any{"lockId": "other", "resources": names, "schedule": 1}); err != nil {
			return err
		}
		if err := wait.Get(ctx, nil); err != nil {
			return err
		}
		if _, err := call(once, "lockstep.Acquire", map[string]any{"resources": []any{resource}, "schedule": 2, "holdOnly": true}); err != nil {
			return err
		}
		_, err = call(locks, "lockstep.Release", map[string]any{"resources": names, "schedule": 2})
		return err
	})
	require.Eventually(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		return err == nil && len(d.GetPendingActivities()) == 1 && d.GetPendingActivities()[0].GetActivityId() == "lockstep-wait-1" &&
			d.GetPendingActivities()[0].GetLastFailure().GetApplicationFailureInfo().GetType() == "lockstep.Busy"
	}, within, 20*time.Millisecond, "it does not wait")
	require.NoError(t, s.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "release", nil))
	require.NoError(t, get(t, run))
	require.Empty(t, s.states(t, "account/1", ""))
}

// holds starts a workflow that keeps an account forever.
func (s *served) holds(t *testing.T) client.WorkflowRun {
	t.Helper()
	run := s.foreign(t, func(ctx workflow.Context, locks workflow.Context) error {
		_, err := call(locks, "lockstep.Acquire", map[string]any{
			"resources": []any{map[string]any{"name": "account/1"}}, "schedule": 1, "holdTtl": "forever", "holdOnly": true,
		})
		workflow.GetSignalChannel(ctx, "never").Receive(ctx, nil)
		return err
	})
	require.Eventually(t, func() bool { return len(s.states(t, "account/1", "")) == 1 }, within, 20*time.Millisecond, "it has no lock")
	return run
}

func (s *served) untilReleased(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.states(t, "account/1", "")) == 0 }, within, 20*time.Millisecond, "the lock is still held")
}

func TestWorker_Janitor_ReleasesLocksOfTerminatedWorkflow(t *testing.T) {
	t.Parallel()
	s := serve(t, "--janitor", "200ms")
	run := s.holds(t)
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
	s.untilReleased(t)
	s.stop(t)
}

func TestJanitor_OnceOrForever_ReleasesLocksOfTerminatedWorkflow(t *testing.T) {
	t.Parallel()
	s := serve(t, "--janitor", "0")
	run := s.holds(t)
	require.JSONEq(t, `{"listed":1,"asked":1,"open":1,"closed":0,"unknown":0,"failed":0,"extended":0,"released":0,"errors":0,"damaged":0}`, s.prints(t, "janitor", "--once", "--json"))
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
	require.Contains(t, s.prints(t, "janitor", "--once"), "1 lock or request was released")
	require.Empty(t, s.states(t, "account/1", ""))

	run = s.holds(t)
	j := s.locks.start(t, "janitor", "--interval", "200ms")
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
	s.untilReleased(t)
	j.interrupt(t)
	require.Zero(t, j.wait(t), &j.stderr)
}

// stuck returns a worker that was interrupted while it runs an activity, which waits for the database until thaw is called.
func stuck(t *testing.T) (s *served, run client.WorkflowRun, thaw func()) {
	t.Helper()
	wire, uri := testenv.MongoByWire(t)
	var gate sync.RWMutex
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	wire.OnRequest(func(data []byte) harness.Moment {
		if bytes.Contains(data, []byte("account/1")) { // and not the start of another connection, for instance
			ask()
			gate.RLock()
			defer gate.RUnlock()
		}
		return harness.Never
	})
	s = serve(t, "--janitor", "0", "--mongodb-uri", uri)
	gate.Lock()
	run = s.foreign(t, func(_ workflow.Context, locks workflow.Context) error {
		_, err := call(locks, "lockstep.Release", map[string]any{"resources": []string{"account/1"}, "schedule": 1})
		return err
	})
	// The server reports the activity as started before the worker has it. A worker that stops then would never get it.
	select {
	case <-asked:
	case <-time.After(within):
		require.Fail(t, "no activity asks the database")
	}
	s.interrupt(t)
	require.Eventually(t, func() bool { return strings.Contains(s.stderr.String(), "lockstep: stopping") },
		within, 10*time.Millisecond, "it did not see the signal")
	return s, run, gate.Unlock
}

func TestWorker_Interrupted_EndsRunningActivities(t *testing.T) {
	t.Parallel()
	s, run, thaw := stuck(t)
	thaw()
	require.NoError(t, get(t, run))
	require.Zero(t, s.wait(t), &s.stderr)
}

func TestWorker_SecondInterrupt_EndsItAtOnce(t *testing.T) {
	t.Parallel()
	s, run, thaw := stuck(t)
	defer thaw()
	s.interrupt(t)
	require.Equal(t, -1, s.wait(t), "the signal ended it before the activity: %s", &s.stderr)
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
}
