package worker_test

import (
	"context"
	"testing"
	"time"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func ruled(change func(l *workflows.Locks)) []workflows.Rule {
	return []workflows.Rule{workflows.RuleFor("Look", func(p payment) workflows.Locks {
		l := workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive(p.Account), lockcore.Exclusive("second")}}
		change(&l)
		return l
	})}
}

func TestARuleThatChangesItsMaxWaitLeavesTheWaitInPlace(t *testing.T) {
	t.Parallel()
	b := setup(t, ruled(func(*workflows.Locks) {})...)
	b.workflow("W", func(ctx workflow.Context) error { return pay(ctx, payment{account.Name}) })
	b.work(t, sdkworker.Options{}, lookAt(b))
	one, two := b.taken(t, account), b.taken(t, lockcore.Exclusive("second"))
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, one.Leave(t.Context()))
	b.untilQueued(t, "second", 1)
	b.untilParked(t, run)
	require.NoError(t, two.Leave(t.Context()))
	events, err := b.end(t, run)
	require.NoError(t, err)
	for _, bound := range []time.Duration{0, time.Nanosecond, time.Hour} {
		b.rules = ruled(func(l *workflows.Locks) { l.MaxWait = bound })
		require.NoError(t, b.tryReplay(t, &historypb.History{Events: events}), bound)
	}
}

func TestARuleThatChangesItsScopeOutsideASagaLeavesTheReleaseInPlace(t *testing.T) {
	t.Parallel()
	for _, scope := range []workflows.Scope{workflows.ScopeSaga, workflows.ScopeStep} {
		b := setup(t, payments(scope))
		b.workflow("W", func(ctx workflow.Context) error {
			for range 2 {
				if err := pay(ctx, payment{account.Name}); err != nil {
					return err
				}
			}
			return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
				return pay(ctx, payment{"another"})
			})
		})
		b.work(t, sdkworker.Options{}, lookAt(b))
		events, err := b.end(t, b.start(t, "W"))
		require.NoError(t, err)
		for _, rule := range []workflows.Rule{payments(workflows.ScopeSaga), payments(workflows.ScopeStep), payments(""), payments(scope).Retired()} {
			b.rules = []workflows.Rule{rule}
			require.NoError(t, b.tryReplay(t, &historypb.History{Events: events}), scope)
		}
	}
}

func TestARuleThatDoesNotTryAnyMoreMakesNoReleaseOfItsOwn(t *testing.T) {
	t.Parallel()
	tries := func(try bool) []workflows.Rule { return ruled(func(l *workflows.Locks) { l.Try = try }) }
	b := setup(t, tries(true)...)
	b.workflow("W", func(ctx workflow.Context) error {
		_ = pay(ctx, payment{account.Name})
		return do(ctx, "Other")
	})
	acts := lookAt(b)
	acts["Other"] = nothing
	b.work(t, sdkworker.Options{}, acts)
	other := b.taken(t, account)
	events, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.NoError(t, other.Leave(t.Context()))
	for _, try := range []bool{true, false} {
		b.rules = tries(try)
		require.NoError(t, b.tryReplay(t, &historypb.History{Events: events}), try)
	}
}

func TestARetiredRuleReleasesWhatATimeoutMayHaveLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, payments(""))
	b.workflow("W", func(ctx workflow.Context) error {
		once := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		})
		_ = pay(once, payment{account.Name})
		return do(ctx, "Other")
	})
	b.work(t, sdkworker.Options{}, map[string]any{
		"Other": nothing, "Look": func(ctx context.Context, _ payment) error {
			<-ctx.Done()
			return nil
		},
	})
	events, err := b.end(t, b.start(t, "W"))
	require.NoError(t, err)
	require.Contains(t, commands(t, &historypb.History{Events: events}), "version lockstep.traces")
	b.rules = []workflows.Rule{payments("").Retired()}
	require.NoError(t, b.tryReplay(t, &historypb.History{Events: events}))
}
