package worker_test

import (
	"context"
	"fmt"
	"testing"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// workDynamically starts a worker on which a dynamic activity serves every type: it looks whether the account is free.
func (b *bundle) workDynamically(t *testing.T) error {
	t.Helper()
	w := sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin}, DeadlockDetectionTimeout: within})
	for name, fn := range b.workflows {
		w.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	}
	w.RegisterDynamicActivity(func(ctx context.Context, args converter.EncodedValues) (string, error) {
		var p payment
		if args.HasValues() {
			if err := args.Get(&p); err != nil {
				return "", err
			}
		}
		return p.Account, b.look(ctx)
	}, activity.DynamicRegisterOptions{})
	err := w.Start()
	if err == nil {
		t.Cleanup(w.Stop)
	}
	return err
}

func TestRule_DynamicActivity_GetsTheArgumentDecoded(t *testing.T) {
	t.Parallel()
	locks := func(name string) []lockcore.Resource {
		if name == "" {
			return nil
		}
		return []lockcore.Resource{lockcore.Exclusive(name)}
	}
	b := setup(t,
		worker.RuleFor("Value", func(p payment) []lockcore.Resource { return locks(p.Account) }),

		worker.RuleFor("Pointer", func(p *payment) []lockcore.Resource {
			if p == nil {
				return nil
			}
			return locks(p.Account)
		}),
		worker.RuleFor("Any", func(in any) []lockcore.Resource {
			p, _ := in.(map[string]any)
			name, _ := p["Account"].(string)
			return locks(name)
		}),
		worker.RuleFor("Encoded", func(in converter.EncodedValues) []lockcore.Resource {
			var p payment
			if err := in.Get(&p); err != nil {
				return nil
			}
			return locks(p.Account)
		}),
	)
	for _, name := range []string{"Value", "Pointer", "Any", "Encoded", "NoRule"} {
		b.workflow(name, func(ctx workflow.Context) error {
			var got string
			if err := workflow.ExecuteActivity(ctx, name, payment{account.Name}, "another argument").Get(ctx, &got); err != nil {
				return err
			}
			if got != account.Name {
				return fmt.Errorf("the activity got %q", got)
			}
			return nil
		})
	}
	for _, name := range []string{"Pointer", "Any"} {
		b.workflow(name+" of nothing", func(ctx workflow.Context) error { return do(ctx, name) })
	}
	require.NoError(t, b.workDynamically(t))
	for _, tc := range []struct {
		name string
		free bool
	}{{"Value", false}, {"Pointer", false}, {"Any", false}, {"Encoded", false}, {"NoRule", true}, {"Pointer of nothing", true}, {"Any of nothing", true}} {
		before := len(b.read())
		_, err := b.end(t, b.start(t, tc.name))
		require.NoError(t, err, tc.name)
		require.Equal(t, []string{fmt.Sprintf("free: %v", tc.free)}, b.read()[before:], tc.name)
		b.requireFree(t, account.Name)
	}
}

func TestRule_DynamicActivityWithAnotherArgument_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	for name, args := range map[string][]any{"number": {42}, "nothing": nil} {
		b.workflow(name, func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "Look", args...).Get(ctx, nil) })
	}
	require.NoError(t, b.workDynamically(t))
	for _, name := range []string{"number", "nothing"} {
		_, err := b.end(t, b.start(t, name))
		require.ErrorIs(t, workflows.LockError(err), lockcore.ErrInvalid, name)
		require.ErrorContains(t, err, "Look", name)
		require.ErrorContains(t, err, "payment", name)
	}
	require.Empty(t, b.read())
}

func TestRule_DynamicActivityForAnInterface_KeepsTheWorkerFromStarting(t *testing.T) {
	t.Parallel()
	b := setup(t, worker.RuleFor("Look", func(fmt.Stringer) []lockcore.Resource { return nil }))
	err := b.workDynamically(t)
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	require.ErrorContains(t, err, "dynamic activity")
	require.ErrorContains(t, err, "fmt.Stringer")
}
