package worker_test

import (
	"testing"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/stretchr/testify/require"
)

// The lock is asked for between two resets, and answered after the second. What follows does not depend on what a worker
// knows of the run: it replays where the run's ID is not told, and in a run that another reset makes of it.
func TestALockThatIsAskedForBetweenResetsIsTheLastRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflows["W"] = locksAfterASignal
	b.workWithoutADatabase(t)
	run := resetWhileItAsks(t, b, func() client.WorkflowRun { return b.start(t, "W") })
	_, err := b.end(t, run) // which replays it
	require.NoError(t, err)
	b.requireFree(t, account.Name)
	tasks := b.tasks(t, run)
	sdkworker.PurgeStickyWorkflowCache()
	again := b.reset(t, run, tasks)
	_, err = b.end(t, again)
	require.NoError(t, err)
	b.requireFree(t, account.Name)
}
