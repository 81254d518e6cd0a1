package worker_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Two sagas hold one account each, by a guard, and want that of the other by a rule. The deadlock is found, also if both have owners of
// their own, and its victim begins again.
func TestRule_Deadlock_SagaBeginsAgain(t *testing.T) {
	t.Parallel()
	for name, withOwner := range map[string]func(ctx workflow.Context) workflow.Context{
		"default owner": func(ctx workflow.Context) workflow.Context { return ctx },
		"own owner": func(ctx workflow.Context) workflow.Context {
			return workflows.WithOwner(ctx, "order of "+workflow.GetInfo(ctx).WorkflowExecution.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, payments())
			for id, accounts := range map[string][]string{"there": {account.Name, account2.Name}, "back": {account2.Name, account.Name}} {
				b.workflow(id, func(ctx workflow.Context) error {
					return saga(withOwner(ctx), func(ctx workflow.Context, s *workflows.Saga) error {
						b.write("%s %d", id, s.Attempt())
						if err := do(workflows.Guard(ctx, lockcore.Exclusive(accounts[0])), "Nothing"); err != nil {
							return err
						}
						if s.Attempt() == 1 {
							receive(ctx, "go on")
						}
						return pay(ctx, payment{accounts[1]})
					})
				})
			}
			b.work(t, sdkworker.Options{}, lookAt(b))
			runs := []client.WorkflowRun{b.start(t, "there"), b.start(t, "back")}
			for _, run := range runs {
				b.untilIdle(t, run)
				b.signal(t, run, "go on")
			}
			b.breakDeadlocks(t, 10*lookEvery, runs...)
			b.succeed(t, runs...)
			b.requireFree(t, account.Name)
			b.requireFree(t, account2.Name)
		})
	}
}

// A compensation that a rule locks waits for another saga, which waits for it. The other one is the victim, although it began earlier.
func TestRule_DeadlockOfCompensation_IsNotTheVictim(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	b.saga("other", func(ctx workflow.Context, s *workflows.Saga) error {
		b.write("other %d", s.Attempt())
		if err := do(workflows.Guard(ctx, account2), "Nothing"); err != nil {
			return err
		}
		if s.Attempt() == 1 {
			receive(ctx, "go on")
		}
		return do(workflows.Guard(ctx, account), "Nothing")
	})
	b.saga("undone", func(ctx workflow.Context, s *workflows.Saga) error {
		if err := s.Compensate(ctx, func(ctx workflow.Context) error { return pay(ctx, payment{account2.Name}) }); err != nil {
			return err
		}
		if err := do(workflows.Guard(ctx, account), "Nothing"); err != nil {
			return err
		}
		receive(ctx, "go on")
		return errors.New("the saga fails")
	})
	b.work(t, sdkworker.Options{}, lookAt(b))
	runs := []client.WorkflowRun{b.start(t, "other"), b.start(t, "undone")}
	for _, run := range runs {
		b.untilIdle(t, run)
		b.signal(t, run, "go on")
	}
	b.breakDeadlocks(t, 10*lookEvery, runs...)
	b.succeed(t, runs[0])
	_, err := b.end(t, runs[1])
	require.ErrorContains(t, err, "the saga fails")
	require.NotContains(t, err.Error(), "was not undone")
	require.Contains(t, b.read(), "other 2")
	require.Contains(t, b.read(), "free: false", "the compensation has run under its lock")
}
