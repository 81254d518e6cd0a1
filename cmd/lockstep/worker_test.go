package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// within bounds what a test waits for: long, since machines are slow and only failures take it.
const within = 2 * time.Minute

// served is a worker of the command line, and what it serves.
type served struct {
	client   client.Client
	locker   *lockcore.Locker
	locks    string // the task queue of the lock activities
	database string
	cmd      *exec.Cmd
	stderr   *text
	out      *bufio.Reader
}

// text is what a process that still runs has written.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// serve starts the command line's worker on a database of the test's own, and returns when it polls.
func serve(t *testing.T, args ...string) *served {
	t.Helper()
	return serveWith(t, servers(t), args...)
}

// serveWith is serve, with an environment that says where the servers are.
func serveWith(t *testing.T, env []string, args ...string) *served {
	t.Helper()
	db := testenv.Mongo(t)
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	s := &served{client: testenv.Temporal(t), locker: locker, locks: testenv.TaskQueue(t), database: db.Name(), stderr: &text{}}
	s.cmd = exec.CommandContext(t.Context(), binary, append([]string{
		"worker", "--task-queue", s.locks, "--database", s.database,
	}, args...)...)
	s.cmd.Dir = t.TempDir()
	s.cmd.Env = append(s.cmd.Environ(), env...)
	s.cmd.Stderr = s.stderr
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // where the test did not stop it
		_ = s.cmd.Wait()
	})
	s.out = bufio.NewReader(stdout)
	line, err := s.out.ReadString('\n')
	require.NoError(t, err, "it did not start: %s", s.stderr)
	require.Contains(t, line, s.locks)
	return s
}

// stop ends the worker as Ctrl-C does, and returns its exit status.
func (s *served) stop(t *testing.T) int {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	return s.wait(t)
}

// wait waits until the worker has ended, and returns its exit status, which is -1 where a signal ended it.
func (s *served) wait(t *testing.T) int {
	t.Helper()
	_, err := io.ReadAll(s.out)
	require.NoError(t, err)
	_ = s.cmd.Wait() // the exit status says it
	return s.cmd.ProcessState.ExitCode()
}

// foreign starts a workflow on a worker that knows nothing of Lockstep, and which knows the lock activities by their
// names and their JSON alone.
func (s *served) foreign(t *testing.T, fn func(ctx workflow.Context, locks workflow.Context) error) client.WorkflowRun {
	t.Helper()
	queue := testenv.TaskQueue(t)
	w := sdkworker.New(s.client, queue, sdkworker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		return fn(ctx, workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: s.locks, StartToCloseTimeout: 30 * time.Second}))
	}, workflow.RegisterOptions{Name: "Foreign"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, "Foreign")
	require.NoError(t, err)
	return run
}

func get(t *testing.T, run client.WorkflowRun) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	err := run.Get(ctx, nil)
	require.NoError(t, ctx.Err(), "the workflow did not end")
	return err
}

// states lists what stands on a resource.
func (s *served) states(t *testing.T, resource string) []lockcore.State {
	t.Helper()
	states := []lockcore.State{}
	for held, err := range s.locker.Status(t.Context(), lockcore.Filter{Resource: resource}) {
		require.NoError(t, err)
		states = append(states, held.State)
	}
	return states
}

func call(ctx workflow.Context, name string, in map[string]any) (out map[string]any, err error) {
	err = workflow.ExecuteActivity(ctx, name, in).Get(ctx, &out)
	return out, err
}

func TestTheWorkerServesWorkflowsThatKnowOnlyNamesAndJSON(t *testing.T) {
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
	require.Empty(t, s.states(t, "account/1"))
	require.Equal(t, 0, s.stop(t), "%s", s.stderr)
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

// A busy Acquire that is not retried leaves a place in the queue; the workflow waits for its turn without a slot, is
// woken by the worker that grants it, and asks again.
func TestAForeignWorkflowWaitsItsTurn(t *testing.T) {
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
		turn := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: s.locks, StartToCloseTimeout: 30 * time.Second, ActivityID: "lockstep-wait-1",
		}), "lockstep.Wait", map[string]any{"resource": resource, "order": map[string]any{"schedule": 1, "attempt": 1}})
		workflow.GetSignalChannel(ctx, "release").Receive(ctx, nil)
		if _, err := call(locks, "lockstep.Release", map[string]any{"lockId": "other", "resources": names, "schedule": 1}); err != nil {
			return err
		}
		if err := turn.Get(ctx, nil); err != nil {
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
	require.Empty(t, s.states(t, "account/1"))
}

// holds is a workflow that keeps an account for ever.
func (s *served) holds(t *testing.T) client.WorkflowRun {
	t.Helper()
	run := s.foreign(t, func(ctx workflow.Context, locks workflow.Context) error {
		_, err := call(locks, "lockstep.Acquire", map[string]any{
			"resources": []any{map[string]any{"name": "account/1"}}, "schedule": 1, "holdTtl": "forever", "holdOnly": true,
		})
		workflow.GetSignalChannel(ctx, "never").Receive(ctx, nil)
		return err
	})
	require.Eventually(t, func() bool { return len(s.states(t, "account/1")) == 1 }, within, 20*time.Millisecond, "it has no lock")
	return run
}

func (s *served) untilReleased(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.states(t, "account/1")) == 0 }, within, 20*time.Millisecond, "the lock stands")
}

func TestTheWorkersJanitorReleasesWhatATerminatedWorkflowLeft(t *testing.T) {
	t.Parallel()
	s := serve(t, "--janitor", "200ms")
	run := s.holds(t)
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
	s.untilReleased(t)
	require.Equal(t, 0, s.stop(t), "%s", s.stderr)
}

func TestTheJanitorAloneDoesARoundOrManyFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := serve(t, "--janitor", "0")
	run := s.holds(t)
	once := func(flags ...string) string {
		code, stdout, stderr := lockstep(t, servers(t), append([]string{"janitor", "--once", "--database", s.database}, flags...)...)
		require.Equal(t, 0, code, stderr)
		return stdout
	}
	require.JSONEq(t, `{"listed":1,"asked":1,"open":1,"closed":0,"unknown":0,"failed":0,"extended":0,"released":0,"errors":0}`, once("--json"))
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
	require.Contains(t, once(), "1 locks and requests were released")
	require.Empty(t, s.states(t, "account/1"))

	run = s.holds(t)
	c := exec.CommandContext(t.Context(), binary, "janitor", "--interval", "200ms", "--database", s.database)
	c.Env = append(c.Environ(), servers(t)...)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() }) // if the test did not stop it
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
	s.untilReleased(t)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	_ = c.Wait() // the exit status says it
	require.Equal(t, 0, c.ProcessState.ExitCode())
}
