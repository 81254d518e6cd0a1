package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/verify"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// door is a resource that one workflow locks until the test closes work, and that others wait for.
type door struct {
	*locks
	client client.Client
	queue  string
	work   chan struct{}
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

// broken locks the door, and then its workflow task fails.
func (d *door) broken(ctx workflow.Context) error {
	if _, err := workflows.Lock(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive("door")}}); err != nil {
		return err
	}
	panic("no such door")
}

// openDoor starts a worker without a janitor.
func openDoor(t *testing.T) *door {
	t.Helper()
	return openDoorWith(t, sdkworker.Options{})
}

func openDoorWith(t *testing.T, o sdkworker.Options) *door {
	t.Helper()
	d := &door{locks: newLocks(t), client: testenv.Temporal(t), queue: testenv.TaskQueue(t), work: make(chan struct{})}
	o.Identity = "the door's worker"
	w := d.worker(t, o)
	w.RegisterWorkflowWithOptions(d.enter, workflow.RegisterOptions{Name: "Enter"})
	w.RegisterWorkflowWithOptions(d.broken, workflow.RegisterOptions{Name: "Broken"})
	w.RegisterWorkflowWithOptions(d.lock, workflow.RegisterOptions{Name: "Lock"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return d
}

// worker makes a worker with the activity Work.
func (d *door) worker(t *testing.T, o sdkworker.Options) sdkworker.Worker {
	t.Helper()
	plugin, err := worker.NewPlugin(worker.Options{Locker: d.Locker, TaskQueue: d.queue, Janitor: worker.JanitorOptions{Off: true}})
	require.NoError(t, err)
	o.Plugins = []sdkworker.Plugin{plugin}
	w := sdkworker.New(d.client, d.queue, o)
	w.RegisterActivity(d.Work)
	return w
}

// come starts a workflow, and returns when it holds the door or waits for it.
func (d *door) come(t *testing.T, workflowType string, state lockcore.State) client.WorkflowRun {
	t.Helper()
	run, err := d.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: d.queue, WorkflowExecutionTimeout: 5 * within}, workflowType)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for s, err := range d.Status(t.Context(), lockcore.Filter{Resource: "door", States: []lockcore.State{state}}) {
			if err == nil && (&inspect.Site{}).PartyOf(&s).Workflow == run.GetID() {
				return true
			}
		}
		return false
	}, within, 20*time.Millisecond)
	return run
}

func TestCommands_HolderAndWaiter_AreShownAndReleased(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	first := d.come(t, "Enter", lockcore.StateHolding)
	second := d.come(t, "Enter", lockcore.StateWaiting)

	require.Regexp(t, `(?m)^door +`+first.GetID()+` +exclusive .* 1 `, d.prints(t, "ps"))
	shown := d.prints(t, "show", "door")
	require.Contains(t, shown, first.GetID()+" holds door (exclusive)")
	require.Contains(t, shown, second.GetID()+" waits for door (exclusive)")

	why := d.prints(t, "why", second.GetID())
	require.Regexp(t, `(?m)^`+first.GetID()+` holds door .*\n   workflow  Running, run `+first.GetRunID(), why)
	require.Regexp(t, `activity  Work \(\d+\), running, attempt 1, on the door's worker`, why)
	require.Contains(t, why, "└─ "+second.GetID()+" waits for door (exclusive)")
	require.Contains(t, why, "it is at work: Work has been running for")
	own := d.prints(t, "why", first.GetID())
	require.Contains(t, own, first.GetID()+" waits for no lock\n"+first.GetID()+" holds door")
	require.Contains(t, own, "→ it is at work: Work has been running for", "as its waiter sees it")
	require.Equal(t, "no deadlock\n", d.prints(t, "deadlocks"))

	var asJSON inspect.Why
	require.NoError(t, json.Unmarshal([]byte(d.prints(t, "why", "--json", second.GetID())), &asJSON))
	require.Equal(t, first.GetID(), asJSON.Roots[0].Party.Workflow)
	require.Equal(t, "Work", asJSON.Roots[0].Doing.Activities[0].Type)

	lockID := asJSON.Roots[0].Hold.LockID
	require.Contains(t, d.fails(t, 2, "release", "door", lockID, "--reason", "a drill"), "there is no terminal to ask at: --yes")
	require.Contains(t, d.fails(t, 1, "release", "door", lockID, "--reason", "a drill", "--fence", "7", "--yes"), "--fence is 7: nothing was ended")
	_, ended, logged := d.lockstep(t, "release", "door", first.GetID(), "--reason", "a drill", "--now", "--yes")
	require.Regexp(t, `ended\n`+first.GetID()+` on \S+ may still work under it: it learns of the release at its next renewal, in \d+ s at most, or stops in .* at most `+
		`if it does not reach the database. Others do not wait for that; only fencing tokens refuse what it writes in the meantime, or after a stall\n`+second.GetID()+" ", ended)
	require.Regexp(t, `level=INFO msg="lockstep: ended by force" resource=door lockId=\S+ owner=\S+ fence=\d+ reason="a drill \(.+@.+\)"\n`, logged)
	require.Eventually(t, func() bool {
		_, out, _ := d.lockstep(t, "show", "door")
		return strings.Contains(out, second.GetID()+" holds door")
	}, within, 100*time.Millisecond, "the waiter gets the lock")
	close(d.work)
	require.NoError(t, second.Get(t.Context(), nil))
	lost := first.GetID() + ` lost its lock on door at .* UTC, released by force: a drill \(.+@.+\)\n`
	require.Regexp(t, lost, d.prints(t, "why", first.GetID()))
	require.Eventually(t, func() bool {
		status, out, _ := d.lockstep(t, "show", "door")
		return status == 1 && regexp.MustCompile(`not held, and not waited for\n\n  `+lost).MatchString(out)
	}, within, 100*time.Millisecond, "it is known after the owner has left")
}

// A workflow whose code fails holds its locks until it is mended.
func TestWhy_FailingWorkflowTask_QuotesTheFailure(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	testenv.AllowFailedTasks(t, d.queue, "no such door")
	d.come(t, "Broken", lockcore.StateHolding)
	waits := d.come(t, "Enter", lockcore.StateWaiting)
	require.Eventually(t, func() bool {
		return regexp.MustCompile(`→ its workflow task has failed \d+ times?: .*no such door`).MatchString(d.prints(t, "why", waits.GetID()))
	}, within, 100*time.Millisecond)
}

// A drill: no janitor works when a workflow is terminated.
func TestOrphans_TerminatedWorkflow_AreListedAndReleased(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	gone := d.come(t, "Lock", lockcore.StateHolding)
	waits := d.come(t, "Enter", lockcore.StateWaiting)
	require.Contains(t, d.prints(t, "why", waits.GetID()), "it runs no activity: it waits for a timer")
	require.Equal(t, "no orphans\n", d.prints(t, "orphans"))
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), gone.GetID(), gone.GetRunID(), "a drill"))

	require.Contains(t, d.prints(t, "why", waits.GetID()), "its run is over (Terminated): a janitor releases its locks")
	require.Regexp(t, `(?m)^door +`+gone.GetID()+` +a lock +released by the janitor, since its workflow run is closed: Terminated$`, d.prints(t, "orphans"))
	found := d.examined(t)
	require.Regexp(t, `(?m)^warning  janitor +none works`, found)
	require.Regexp(t, `(?m)^warning  orphans +1 lock or queued request of closed workflows`, found)
	require.Contains(t, d.prints(t, "janitor", "--once"), "1 lock or request was released")
	require.Equal(t, "no orphans\n", d.prints(t, "orphans"))
	close(d.work)
	require.NoError(t, waits.Get(t.Context(), nil))
}

func TestInit_Repeated_PrintsTheSameID(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	first := l.prints(t, "init")
	require.Contains(t, first, "the collection's ID is ")
	require.Equal(t, first, l.prints(t, "init"))
}

// A program would not notice that a list is cut.
func TestPs_JSON_ListsAllResources(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: "holder"}, TTL: time.Hour}
	for i := range 60 {
		req.Resources = append(req.Resources, lockcore.Exclusive(fmt.Sprintf("item/%02d", i)))
	}
	_, err := l.TryEnter(t.Context(), req)
	require.NoError(t, err)
	for want, args := range map[int][]string{60: {"ps", "--json"}, 50: {"ps", "--json", "--most", "50"}} {
		var listed []inspect.Resource
		require.NoError(t, json.Unmarshal([]byte(l.prints(t, args...)), &listed))
		require.Len(t, listed, want)
	}
	require.Contains(t, l.prints(t, "ps"), "and 10 more; see --most")
}

func TestPs_LocksOfLockstep_AreListedOnRequest(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "a janitor", "p", janitor.LockName("the-namespace"))
	require.Equal(t, "no lock is held, and none is waited for, in collection locks of database "+l.database+"\n", l.prints(t, "ps"))
	require.Contains(t, l.prints(t, "ps", "--all"), "lockstep.janitor/the-namespace  a janitor")
	require.Contains(t, l.prints(t, "ps", "--json"), `"internal": true`)
}

// "No lock is held" would be a wrong answer to a wrong name.
func TestCommands_NoCollection_FailAndMakeNone(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	for _, args := range [][]string{{"ps"}, {"show", "r"}, {"why", "w"}, {"deadlocks"}, {"orphans"}, {"ui", "--listen", "127.0.0.1:0"}, {"release", "r", "w", "--reason", "a drill", "--yes"}} {
		require.Equal(t, `lockstep: there is no collection of locks: database "`+l.database+`" has no collection "locks", or it is empty`+"\n", l.fails(t, 1, args...))
	}
	names, err := testenv.Mongo(t).Client().Database(l.database).ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)
}

var update = flag.Bool("update", false, "write the golden files")

// fields lists the JSON fields of a type, a line for each. within has the outer types: recursion ends there.
func fields(of reflect.Type, path string, within []reflect.Type) (lines []string) {
	switch {
	case of.Kind() == reflect.Pointer:
		return fields(of.Elem(), path, within)
	case of.Kind() == reflect.Slice:
		return fields(of.Elem(), path+"[]", within)
	case of == reflect.TypeFor[time.Duration]():
		return []string{path + " nanoseconds"}
	case of == reflect.TypeFor[time.Time]():
		return []string{path + " time"}
	case of.Kind() != reflect.Struct:
		return []string{path + " " + of.Kind().String()}
	}
	for _, outer := range within {
		if outer == of {
			return []string{path + " as above"}
		}
	}
	within = append(within[:len(within):len(within)], of)
	for i := range of.NumField() {
		f := of.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || tag == "-":
		case f.Anonymous && tag == "":
			lines = append(lines, fields(f.Type, path, within)...)
		case tag == "":
			lines = append(lines, path+"."+f.Name+": no name in JSON")
		default:
			for _, line := range fields(f.Type, path+"."+tag, within) {
				if options != "" && !strings.Contains(line, ", perhaps") {
					line += ", perhaps"
				}
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// The fields that each command prints are in testdata/*.fields. -update adds new ones; removing a field breaks users' programs.
func TestJSON_Fields_AreContract(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]reflect.Type{
		"ps": reflect.TypeFor[[]inspect.Resource](), "show": reflect.TypeFor[inspect.Resource](), "why": reflect.TypeFor[inspect.Why](),
		"deadlocks": reflect.TypeFor[[]lockcore.Deadlock](), "orphans": reflect.TypeFor[[]inspect.Orphan](), "doctor": reflect.TypeFor[[]inspect.Finding](),
		"janitor": reflect.TypeFor[janitor.Result](), "verify": reflect.TypeFor[verify.Report](),
		"policies": reflect.TypeFor[inspect.Policies](), "pool": reflect.TypeFor[inspect.Pool](),
	} {
		text := strings.Join(fields(of, "", nil), "\n") + "\n"
		require.NotContains(t, text, "no name", name)
		path := filepath.Join("testdata", name+".fields")
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o750))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), text, "%s: go test ./cmd/lockstep -run JSON -update writes it", name)
	}
}
