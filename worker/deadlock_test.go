package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A saga receives a deadlock error while its step waits in its slot, at its first attempt. The step never ran, so it is not undone: its
// compensation would wait for the lock of the other saga.
func TestDeadlock_VictimBeforeParking_IsNotUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.pair("", account, account2)
	b.workOnTransfers(t)
	// On a busy machine both may have parked before the search. Such a scene shows nothing.
	for scenes, inSlot := 0, 0; inSlot < 3; scenes++ {
		require.Less(t, scenes, 15, "no deadlock was found while a step waited in its slot")
		inSlot += b.cross(t, lookEvery, p)
	}
	b.requireUndoneIfDone(t)
}

// Pairs of sagas that wait for each other: both have debited before either credits. However the deadlock is found, one is the victim,
// begins again by itself, and both end well.
func TestDeadlock_ManyPairsOfSagas_AllEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pairs int
		locks func(i int) (one, other lockcore.Resource)
	}{
		"in opposite directions": {50, func(i int) (one, other lockcore.Resource) {
			return lockcore.Exclusive(fmt.Sprintf("account/%d/a", i)), lockcore.Exclusive(fmt.Sprintf("account/%d/b", i))
		}},
		// Both share a resource, and then want it alone: what the victim held was only shared. If its compensation ran it would want the
		// resource alone too, and so would the other's: neither could end.
		"upgrades": {10, func(i int) (one, other lockcore.Resource) {
			name := fmt.Sprintf("account/%d", i)
			return lockcore.Shared(name), lockcore.Exclusive(name)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var pairs []pair
			for i := range tc.pairs {
				one, other := tc.locks(i)
				pairs = append(pairs, b.pair(fmt.Sprintf(" %d", i), one, other))
			}
			b.workOnTransfers(t)
			for batch := range slices.Chunk(pairs, 10) { // more at once would only wait for the machine
				b.cross(t, 10*lookEvery, batch...)
			}
			b.requireUndoneIfDone(t)
		})
	}
}

// undoable does a step, which a compensation of its name undoes.
func undoable(ctx workflow.Context, s *workflows.Saga, name, id string) error {
	return s.Step(ctx, name, "Undo"+name, id).Get(ctx, nil)
}

// workOnTransfers starts a worker for the steps of transfers, which are written down.
func (b *bundle) workOnTransfers(t *testing.T) {
	t.Helper()
	steps := map[string]any{}
	for _, name := range []string{"Debit", "UndoDebit", "Credit", "UndoCredit"} {
		steps[name] = func(_ context.Context, id string) error {
			b.write("%s %s", name, id)
			return nil
		}
	}
	b.work(t, sdkworker.Options{}, steps)
}

// pair are two workflows that lock two accounts in opposite orders, unless these are one: then both lock it as the first and as the
// second.
type pair struct{ there, back, one, other string }

func (b *bundle) pair(suffix string, one, other lockcore.Resource) pair {
	p := pair{"there" + suffix, "back" + suffix, one.Name, other.Name}
	b.workflow(p.there, transfer(one, other))
	if one.Name != other.Name {
		one, other = other, one
	}
	b.workflow(p.back, transfer(one, other))
	return p
}

// transfer debits one account and credits the other. Its first Credit is scheduled when the test sends a signal.
func transfer(from, to lockcore.Resource) func(ctx workflow.Context) error {
	return func(ctx workflow.Context) error {
		return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			id := fmt.Sprintf("%s/%d", workflow.GetInfo(ctx).WorkflowExecution.ID, s.Attempt())
			if err := undoable(workflows.Guard(ctx, from), s, "Debit", id); err != nil {
				return err
			}
			if s.Attempt() == 1 {
				receive(ctx, "credit")
			}
			return undoable(workflows.Guard(ctx, to), s, "Credit", id)
		})
	}
}

// cross runs pairs, each of which meets in a deadlock, and requires that all end well. It returns how many steps were given up in their
// slots.
func (b *bundle) cross(t *testing.T, every time.Duration, pairs ...pair) (inSlot int) {
	t.Helper()
	var runs []client.WorkflowRun
	for _, p := range pairs {
		runs = append(runs, b.start(t, p.there), b.start(t, p.back))
	}
	for _, run := range runs {
		b.untilEvent(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	}
	for _, run := range runs {
		b.signal(t, run, "credit")
	}
	b.breakDeadlocks(t, every, runs...)
	for _, run := range runs {
		events, err := b.end(t, run)
		require.NoError(t, err)
		for _, e := range events {
			if e.GetActivityTaskFailedEventAttributes().GetFailure().GetApplicationFailureInfo().GetType() == "lockstep.Deadlock" {
				inSlot++
			}
		}
	}
	for _, p := range pairs {
		b.requireFree(t, p.one)
		b.requireFree(t, p.other)
	}
	return inSlot
}

// breakDeadlocks searches for deadlocks until the runs have ended.
func (b *bundle) breakDeadlocks(t *testing.T, every time.Duration, runs ...client.WorkflowRun) {
	t.Helper()
	left := slices.Clone(runs)
	require.Eventually(t, func() bool {
		_, err := b.locker.BreakDeadlocks(t.Context())
		left = slices.DeleteFunc(left, func(run client.WorkflowRun) bool { return b.hasEnded(t, run) })
		return err == nil && len(left) == 0
	}, 5*within, every, "the sagas do not end")
}

func (b *bundle) hasEnded(t *testing.T, run client.WorkflowRun) bool {
	t.Helper()
	d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
	return err == nil && d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// requireUndoneIfDone requires that every step that was undone had run, and that each transfer was
// debited and credited once.
func (b *bundle) requireUndoneIfDone(t *testing.T) {
	t.Helper()
	lines, left := b.read(), map[string]int{}
	for i, line := range lines {
		step, undoes := strings.CutPrefix(line, "Undo")
		of := step[:strings.LastIndex(step, "/")]
		if !undoes {
			left[of]++
			continue
		}
		require.Contains(t, lines[:i], step, "it was undone and had never run: %v", lines)
		left[of]--
	}
	for of, n := range left {
		require.Equal(t, 1, n, "%s: %v", of, lines)
	}
}

// A saga waits for its second account, is restarted under its workflow ID, and waits again; then it is the victim of a deadlock. That
// another run of it stood in the queue does not say that its step may have run.
func TestDeadlock_RestartedSaga_UndoesOnlyWhatRan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("both", func(ctx workflow.Context, s *workflows.Saga) error {
		return undoable(workflows.Guard(ctx, account, account2), s, "Debit", fmt.Sprintf("both/%d", s.Attempt()))
	})
	b.workflow("back", transfer(account2, account))
	b.workOnTransfers(t)
	other := b.taken(t, account2)
	first := b.start(t, "both")
	b.untilParked(t, first)
	back := b.start(t, "back")
	b.untilQueued(t, account2.Name, 2)
	second, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: first.GetID(), TaskQueue: b.queue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING,
	}, "both")
	require.NoError(t, err)
	b.untilParked(t, second)
	require.NoError(t, other.Leave(t.Context()))
	b.untilEvent(t, back, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	b.signal(t, back, "credit")
	b.breakDeadlocks(t, 10*lookEvery, second, back)
	b.succeed(t, second, back)
	lines := b.read()
	require.NotContains(t, lines, "UndoDebit both/1", "it never ran: %v", lines)
	require.Contains(t, lines, "Debit both/2", "it gave way, and began again: %v", lines)
}
