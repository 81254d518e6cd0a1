package interceptors

import (
	"testing"

	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// The SDK asks every coroutine after every event. With one for each open step, a replay took time
// by the square of their number.
func TestOpenStepsShareOneCoroutine(t *testing.T) {
	t.Parallel()
	const steps = 20
	l, started := &fakeLocker{}, []string{}
	count := &spy{coroutine: func(name string) {
		if name != "" && name != "root" { // the SDK's own
			started = append(started, name)
		}
	}}
	require.NoError(t, runWorkflow(t, workflowEnv(t, with(l), count), &releases{}, func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			ctx = workflows.Guard(ctx, account)
			all := make([]workflow.Future, 0, 2*steps)
			for range steps {
				all = append(all, workflow.ExecuteActivity(ctx, "Debit"), s.Step(ctx, "Debit", "Credit"))
			}
			for _, step := range all {
				if err := step.Get(ctx, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}))
	require.Len(t, l.asked(), 2*steps)
	require.Equal(t, []string{"lockstep-steps", "lockstep-release"}, started)
}
