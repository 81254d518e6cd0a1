package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// A workflow that is cancelled ends by itself, so nothing is ended by force.
func TestRelease_Cancel_WorkflowLeavesByItself(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	first := d.come(t, "Lock", lockcore.StateHolding)
	second := d.come(t, "Enter", lockcore.StateWaiting)
	code, out, stderr := d.lockstep(t, "release", "door", first.GetID(), "--reason", "ticket 4711", "--cancel")
	require.Zero(t, code, out+stderr)
	require.Contains(t, out, "cancelled workflow "+first.GetID()+"; waiting for 1 min at most until it has left door\nit has left\n"+second.GetID())
	require.NotContains(t, stderr, "ended by force")
	require.ErrorContains(t, first.Get(t.Context(), nil), "canceled")
	reason := ""
	events := d.client.GetWorkflowHistory(context.WithoutCancel(t.Context()), first.GetID(), first.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(t, err)
		if a := e.GetWorkflowExecutionCancelRequestedEventAttributes(); a != nil {
			reason = a.GetCause()
		}
	}
	require.Regexp(t, `^ticket 4711 \(.+@.+\)$`, reason)
	require.NotContains(t, d.prints(t, "show", "door"), "released by force")
	close(d.work)
	require.NoError(t, second.Get(t.Context(), nil))
}

// The step does not notice the cancellation. What its workflow still has is ended by force only with --yes.
func TestRelease_CancelledButStays_IsForcedOnlyOnRequest(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	t.Cleanup(func() { close(d.work) })
	first := d.come(t, "Enter", lockcore.StateHolding)
	cancel := []string{"release", "door", first.GetID(), "--reason", "a drill", "--cancel", "--wait", "300ms"}
	require.Regexp(t, `300 ms after workflow .* was cancelled, still .* holds door .*; nothing was ended by force: without --cancel`, d.fails(t, 1, cancel...))
	require.ErrorContains(t, first.Get(t.Context(), nil), "canceled")
	require.Regexp(t, `workflow ".*" has no open run \(Canceled\)`, d.fails(t, 1, cancel...))
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, d.states(t, "door", ""))

	second := d.come(t, "Lock", lockcore.StateWaiting)
	require.Regexp(t, `ended\n`+first.GetID()+` .* may still work under it: .*\n`+second.GetID(), d.prints(t, "release", "door", first.GetID(), "--reason", "a drill", "--now", "--yes"))
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), second.GetID(), second.GetRunID(), "for the test"))
}

func TestRelease_CancelAndYes_ForcesWhatIsLeft(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	t.Cleanup(func() { close(d.work) })
	first := d.come(t, "Enter", lockcore.StateHolding)
	out := d.prints(t, "release", "door", first.GetID(), "--reason", "a drill", "--cancel", "--wait", "300ms", "--now", "--yes")
	require.Regexp(t, `(?s)cancelled workflow .*\n300 ms after workflow .* was cancelled, still .*\nended\n`, out)
	require.Empty(t, d.states(t, "door", ""))
}

func TestRelease_CancelOfNoWorkflow_IsRefused(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "holder", "p", "r")
	require.Contains(t, l.fails(t, 2, "release", "r", "holder", "--reason", "a drill", "--cancel", "--yes"), `"holder" is not a workflow, so it cannot be cancelled`)
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, l.states(t, "r", "holder"))
}

// The lock of an activity without a workflow is listed and ended by the activity's ID.
func TestRelease_ActivityWithoutWorkflow_ByItsID(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	of := wire.Standalone{Namespace: "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11", ActivityID: "import-7", ActivityType: "Import", RunID: "r1"}
	l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: of.LockID(), Run: of.RunID, Part: "r1/rule/Import"}}, lockcore.Exclusive("r"))
	require.Contains(t, l.prints(t, "ps"), "activity import-7 of type Import")
	release := []string{"release", "r", "import-7", "--reason", "a drill", "--now", "--yes"}
	require.Contains(t, l.fails(t, 2, append(release, "--cancel")...), `"activity import-7 of type Import" is not a workflow, so it cannot be cancelled`)
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, l.states(t, "r", of.LockID()))
	l.prints(t, release...)
	require.Empty(t, l.states(t, "r", ""))
}
