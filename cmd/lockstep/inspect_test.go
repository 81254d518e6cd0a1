package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// door is a system in which one workflow works behind a lock until the test lets it go on, and others come.
type door struct {
	client   client.Client
	locker   *lockcore.Locker
	database string
	queue    string
	args     []string
	work     chan struct{}
}

func (d *door) Work(ctx context.Context) error {
	select {
	case <-d.work:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *door) enter(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: within})
	return workflow.ExecuteActivity(workflows.Guard(ctx, lockcore.Exclusive("door")), "Work").Get(ctx, nil)
}

// lock holds the door while the workflow sleeps.
func (d *door) lock(ctx workflow.Context) error {
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("door")}})
	if err != nil {
		return err
	}
	return errors.Join(workflow.Sleep(ctx, within), hold.Release(ctx))
}

// lockAndFail holds the door while an activity fails.
func (d *door) lockAndFail(ctx workflow.Context) error {
	hold, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("door")}})
	if err != nil {
		return err
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: within, RetryPolicy: &temporal.RetryPolicy{BackoffCoefficient: 1}})
	return errors.Join(workflow.ExecuteActivity(ctx, "Fail").Get(ctx, nil), hold.Release(ctx))
}

// Fail fails.
func (d *door) Fail(context.Context) error { return errors.New("no such hinge") }

// openDoor has a worker without a janitor.
func openDoor(t *testing.T) *door {
	t.Helper()
	return openDoorWith(t, sdkworker.Options{})
}

func openDoorWith(t *testing.T, o sdkworker.Options) *door {
	t.Helper()
	db := testenv.Mongo(t)
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	d := &door{
		client: testenv.Temporal(t), locker: locker, database: db.Name(), queue: testenv.TaskQueue(t), args: []string{"--database", db.Name()},
		work: make(chan struct{}),
	}
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, TaskQueue: d.queue, Janitor: worker.JanitorOptions{Off: true}})
	require.NoError(t, err)
	o.Plugins, o.Identity = []sdkworker.Plugin{plugin}, "the door's worker"
	w := sdkworker.New(d.client, d.queue, o)
	w.RegisterWorkflowWithOptions(d.enter, workflow.RegisterOptions{Name: "Enter"})
	w.RegisterWorkflowWithOptions(d.lock, workflow.RegisterOptions{Name: "Lock"})
	w.RegisterWorkflowWithOptions(d.lockAndFail, workflow.RegisterOptions{Name: "LockAndWork"})
	w.RegisterActivity(d.Work)
	w.RegisterActivity(d.Fail)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return d
}

// come starts a workflow, and returns when it holds the door or waits for it.
func (d *door) come(t *testing.T, workflowType string, state lockcore.State) client.WorkflowRun {
	t.Helper()
	run, err := d.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: d.queue, WorkflowExecutionTimeout: 5 * within}, workflowType)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for s, err := range d.locker.Status(t.Context(), lockcore.Filter{Resource: "door", States: []lockcore.State{state}}) {
			if err == nil && (&inspect.Site{}).PartyOf(&s).Workflow == run.GetID() {
				return true
			}
		}
		return false
	}, within, 20*time.Millisecond)
	return run
}

func (d *door) lockstep(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return lockstep(t, servers(t), append(args, d.args...)...)
}

// said is what a command prints that is to succeed.
func (d *door) said(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := d.lockstep(t, args...)
	require.Zero(t, code, stderr)
	if args[0] != "janitor" { // which logs
		require.Empty(t, stderr)
	}
	return stdout
}

func TestOperatorsSeeWhoWaitsForWhomAndEndIt(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	first := d.come(t, "Enter", lockcore.StateHolding)
	second := d.come(t, "Enter", lockcore.StateWaiting)

	require.Regexp(t, `(?m)^door +`+first.GetID()+` +exclusive .* 1 `, d.said(t, "ps"))
	shown := d.said(t, "show", "door")
	require.Contains(t, shown, first.GetID()+" holds door (exclusive)")
	require.Contains(t, shown, second.GetID()+" waits for door (exclusive)")

	why := d.said(t, "why", second.GetID())
	require.Regexp(t, `(?m)^`+first.GetID()+` holds door .*\n   workflow  Running, run `+first.GetRunID(), why)
	require.Regexp(t, `activity  Work \(\d+\), running, attempt 1, on the door's worker`, why)
	require.Contains(t, why, "└─ "+second.GetID()+" waits for door (exclusive)")
	require.Contains(t, why, "it is at work: Work has been running for")
	require.Contains(t, d.said(t, "why", first.GetID()), first.GetID()+" waits for no lock\n"+first.GetID()+" holds door")
	require.Equal(t, "no deadlock\n", d.said(t, "deadlocks"))

	var told inspect.Why
	require.NoError(t, json.Unmarshal([]byte(d.said(t, "why", "--json", second.GetID())), &told))
	require.Equal(t, first.GetID(), told.Roots[0].Party.Workflow)
	require.Equal(t, "Work", told.Roots[0].Doing.Activities[0].Type)

	lockID := told.Roots[0].Hold.LockID
	code, _, stderr := d.lockstep(t, "release", "door", lockID, "--reason", "a drill")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "there is no terminal to ask at: --yes")
	code, _, stderr = d.lockstep(t, "release", "door", lockID, "--reason", "a drill", "--fence", "7", "--yes")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "--fence is 7: nothing was ended")
	require.Contains(t, d.said(t, "release", "door", lockID, "--reason", "a drill", "--now", "--yes"), "ended\n")
	require.Eventually(t, func() bool {
		_, out, _ := d.lockstep(t, "show", "door")
		return bytes.Contains([]byte(out), []byte(second.GetID()+" holds door"))
	}, within, 100*time.Millisecond, "the next one's turn has come")
	close(d.work)
	require.NoError(t, second.Get(t.Context(), nil))
}

func TestMaintenanceKeepsEverybodyOutUntilItEnds(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	require.Contains(t, d.said(t, "hold", "door", "--reason", "new hinges"), `"door" is held for maintenance`)
	second := d.come(t, "Enter", lockcore.StateWaiting)
	require.Contains(t, d.said(t, "why", second.GetID()), "for maintenance: new hinges")

	code, _, stderr := d.lockstep(t, "hold", "door", "--reason", "paint")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `"door" is held for maintenance already: new hinges`)

	close(d.work)
	require.Contains(t, d.said(t, "unhold", "door"), "ended")
	require.NoError(t, second.Get(t.Context(), nil))
	code, _, stderr = d.lockstep(t, "unhold", "door")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `"maintenance" neither holds "door" nor waits for it`)
}

func TestAHoldThatIsInterruptedLeavesTheQueue(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	first := d.come(t, "Enter", lockcore.StateHolding)
	c := exec.CommandContext(t.Context(), binary, append([]string{"hold", "door", "--reason", "paint"}, d.args...)...)
	c.Env = append(c.Environ(), servers(t)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	require.NoError(t, c.Start())
	require.Eventually(t, func() bool { return d.inLine(t) == 1 }, within, 20*time.Millisecond)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	_ = c.Wait() // the exit status says it
	require.Equal(t, 130, c.ProcessState.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "waits for "+first.GetID()+", which holds door")
	require.Zero(t, d.inLine(t))

	code, _, said := d.lockstep(t, "hold", "door", "--reason", "paint", "--wait", "1s")
	require.Equal(t, 1, code)
	require.Contains(t, said, "it was not free within 1s")
	require.Zero(t, d.inLine(t))
	close(d.work)
	require.NoError(t, first.Get(t.Context(), nil))
}

// inLine counts the maintenance that waits for the door.
func (d *door) inLine(t *testing.T) (n int) {
	t.Helper()
	waiting := lockcore.Filter{Resource: "door", LockID: inspect.Maintenance, States: []lockcore.State{lockcore.StateWaiting}}
	for _, err := range d.locker.Status(t.Context(), waiting) {
		require.NoError(t, err)
		n++
	}
	return n
}

// A drill: nobody looks after what a terminated workflow has left.
func TestWhatATerminatedWorkflowLeavesIsFoundAndReleased(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	gone := d.come(t, "Lock", lockcore.StateHolding)
	waits := d.come(t, "Enter", lockcore.StateWaiting)
	require.Contains(t, d.said(t, "why", waits.GetID()), "it runs no activity: it waits for a timer")
	require.Equal(t, "no orphans\n", d.said(t, "orphans"))
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), gone.GetID(), gone.GetRunID(), "a drill"))

	require.Contains(t, d.said(t, "why", waits.GetID()), "its run is over (Terminated): a janitor releases its locks")
	require.Regexp(t, `(?m)^door +`+gone.GetID()+` +a lock +released by the janitor, since its workflow run is closed: Terminated$`, d.said(t, "orphans"))
	found := d.said(t, "doctor")
	require.Regexp(t, `(?m)^warning  janitor +none works`, found)
	require.Regexp(t, `(?m)^warning  orphans +1 locks and places of closed workflows`, found)
	require.Contains(t, d.said(t, "janitor", "--once"), "1 locks and requests were released")
	require.Equal(t, "no orphans\n", d.said(t, "orphans"))
	close(d.work)
	require.NoError(t, waits.Get(t.Context(), nil))
}

// A drill: an operator has paused the activity of a holder, and forgotten it.
func TestAHolderWhoseActivityIsPausedIsFound(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	locks := d.come(t, "LockAndWork", lockcore.StateHolding)
	waits := d.come(t, "Enter", lockcore.StateWaiting)
	_, err := d.client.WorkflowService().PauseActivity(t.Context(), &workflowservice.PauseActivityRequest{
		Namespace: "default", Execution: &commonpb.WorkflowExecution{WorkflowId: locks.GetID()}, Activity: &workflowservice.PauseActivityRequest_Type{Type: "Fail"},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return strings.Contains(d.said(t, "why", waits.GetID()), "its activity Fail is paused: temporal activity unpause --workflow-id "+locks.GetID())
	}, within, 100*time.Millisecond)
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), locks.GetID(), locks.GetRunID(), "a drill"))
	d.said(t, "janitor", "--once")
	close(d.work)
	require.NoError(t, waits.Get(t.Context(), nil))
}

func TestThePageIsServedUntilItIsStopped(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	c := exec.CommandContext(t.Context(), binary, append([]string{"ui", "--listen", "127.0.0.1:0"}, d.args...)...)
	c.Env = append(c.Environ(), servers(t)...)
	stdout, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	address, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	first := d.come(t, "Enter", lockcore.StateHolding)
	second := d.come(t, "Enter", lockcore.StateWaiting)
	page := func(path string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(address)+path, http.NoBody)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode, string(body))
		return string(body)
	}
	require.Contains(t, page(""), first.GetID())
	why := page("why?workflow=" + second.GetID())
	require.Contains(t, why, "it is at work: Work has been running for")
	require.Contains(t, why, "lockstep release door ")
	close(d.work)
	require.NoError(t, second.Get(t.Context(), nil))
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.NoError(t, c.Wait())
}

func TestInitMakesIndexesAndSaysTheID(t *testing.T) {
	t.Parallel()
	db := testenv.Mongo(t)
	code, first, stderr := lockstep(t, servers(t), "init", "--database", db.Name())
	require.Zero(t, code, stderr)
	require.Contains(t, first, "the collection's ID is ")
	_, again, _ := lockstep(t, servers(t), "init", "--database", db.Name())
	require.Equal(t, first, again)
}
