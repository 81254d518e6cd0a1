package testenv

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/failedtasks"
)

// The workflow's first task fails and is repeated, so its result is right.
func TestNoFailedTasks_TaskFailedOnce_FailsUnlessAllowed(t *testing.T) {
	t.Parallel()
	for _, ofQueue := range []string{"", "-elsewhere"} {
		c, queue := Temporal(t), TaskQueue(t)
		w := sdkworker.New(c, queue+ofQueue, sdkworker.Options{})
		var repaired atomic.Bool
		w.RegisterWorkflowWithOptions(func(workflow.Context) error {
			if !repaired.Swap(true) {
				panic("as planned")
			}
			return nil
		}, workflow.RegisterOptions{Name: "W"})
		require.NoError(t, w.Start())
		t.Cleanup(w.Stop)
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue + ofQueue}, "W")
		require.NoError(t, err)
		require.NoError(t, run.Get(t.Context(), nil))

		require.Eventually(t, func() bool { // the list lags behind
			failed, err := failedtasks.List(t.Context(), c.WorkflowService(), client.DefaultNamespace, queue)
			return err == nil && len(failed) > 0
		}, answerWithin, answerWithin/1000)
		reported := &errorRecorder{TB: t}
		NoFailedTasks(reported, c, client.DefaultNamespace, queue)
		require.Len(t, reported.errors, 1)
		require.Contains(t, reported.errors[0], "as planned")
		require.Contains(t, reported.errors[0], run.GetRunID())

		AllowFailedTasks(t, queue, "another", "planned")
		NoFailedTasks(t, c, client.DefaultNamespace, queue)
	}
}

// errorRecorder records the messages of Errorf.
type errorRecorder struct {
	testing.TB
	errors []string
}

func (r *errorRecorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
