package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// journal records what the steps of a test did, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) write(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

var errStep = errors.New("the step failed")

// newEnv returns the SDK's test environment with two activities: Do, which writes its input to the journal,
// and Fail, which does so too and fails.
func newEnv() (*testsuite.TestWorkflowEnvironment, *journal) {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env, j := suite.NewTestWorkflowEnvironment(), &journal{}
	// The default limits for blocked workflow code and for the whole test are too short for a busy machine.
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}).SetTestTimeout(time.Minute)
	env.RegisterActivityWithOptions(func(_ context.Context, what string) error {
		j.write(what)
		return nil
	}, activity.RegisterOptions{Name: "Do"})
	env.RegisterActivityWithOptions(func(_ context.Context, what string) error {
		j.write(what)
		return errStep
	}, activity.RegisterOptions{Name: "Fail"})
	return env, j
}

// execute runs fn as a workflow and returns its error.
func execute(t *testing.T, env *testsuite.TestWorkflowEnvironment, fn func(ctx workflow.Context) error) error {
	t.Helper()
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		return fn(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, RetryPolicy: once}))
	}, workflow.RegisterOptions{Name: "W"})
	env.ExecuteWorkflow("W")
	if !env.IsWorkflowCompleted() {
		t.Fatal("the workflow did not end")
	}
	return env.GetWorkflowError()
}
