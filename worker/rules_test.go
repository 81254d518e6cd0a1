package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

type payment struct{ Account string }

func payments() worker.Rule {
	return worker.RuleFor("Look", func(p payment) []lockcore.Resource {
		if p.Account == "" {
			return nil
		}
		return []lockcore.Resource{lockcore.Exclusive(p.Account)}
	})
}

func lookAt(b *bundle) map[string]any {
	return map[string]any{"Look": func(ctx context.Context, _ payment) error { return b.look(ctx) }}
}

func pay(ctx workflow.Context, argument any) error {
	return workflow.ExecuteActivity(ctx, "Look", argument).Get(ctx, nil)
}

func TestRule_WorkflowWithoutGuard_StepIsGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	for name, argument := range map[string]any{
		"typed": payment{account.Name}, "pointer": &payment{account.Name}, "json": map[string]any{"Account": account.Name}, "no locks": payment{},
	} {
		b.workflow(name, func(ctx workflow.Context) error { return pay(ctx, argument) })
	}
	b.work(t, sdkworker.Options{}, lookAt(b))
	for _, name := range []string{"typed", "pointer", "json", "no locks"} {
		events, err := b.end(t, b.start(t, name))
		require.NoError(t, err)
		require.Equal(t, []string{"Look", "completed"}, commands(&historypb.History{Events: events}))
		b.requireFree(t, account.Name)
	}
	require.Equal(t, []string{"free: false", "free: false", "free: false", "free: true"}, b.read())
}

// A step adds its rule to its guard; what its workflow keeps does not block it.
func TestRule_WorkflowHoldsTheResource_Joins(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	step := func(ctx workflow.Context) error { return pay(ctx, payment{account.Name}) }
	b.workflow("the same guard", func(ctx workflow.Context) error { return step(workflows.Guard(ctx, account)) })
	b.workflow("a weaker guard", func(ctx workflow.Context) error { return step(workflows.Guard(ctx, lockcore.Shared(account.Name))) })
	b.workflow("another guard", func(ctx workflow.Context) error { return step(workflows.Guard(ctx, account2)) })
	b.saga("a saga", func(ctx workflow.Context, _ *workflows.Saga) error {
		return errors.Join(step(workflows.Guard(ctx, account)), step(ctx), step(workflows.Unguarded(ctx)))
	})
	b.workflow("a lock", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error { return step(ctx) })
	})
	b.work(t, sdkworker.Options{}, lookAt(b))
	for _, name := range []string{"the same guard", "a weaker guard", "another guard", "a saga", "a lock"} {
		_, err := b.end(t, b.start(t, name))
		require.NoError(t, err, name)
		b.requireFree(t, account.Name)
		b.requireFree(t, account2.Name)
	}
	require.NotContains(t, b.read(), "free: true")
	require.Len(t, b.read(), 7)
}

// A busy attempt fails, stays in the queue, and is retried; the workflow does not see the failure.
func TestRule_Busy_StepWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	b.workflow("W", func(ctx workflow.Context) error { return pay(ctx, payment{account.Name}) })
	b.workflow("once", func(ctx workflow.Context) error {
		return pay(workflow.WithRetryPolicy(ctx, temporal.RetryPolicy{MaximumAttempts: 1}), payment{account.Name})
	})
	b.workflow("short", func(ctx workflow.Context) error {
		return pay(workflow.WithScheduleToCloseTimeout(ctx, 2*time.Second), payment{account.Name})
	})
	b.work(t, sdkworker.Options{}, lookAt(b))
	other := b.taken(t, account)
	_, err := b.end(t, b.start(t, "once"))
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
	b.untilQueued(t, account.Name, 0)
	_, err = b.end(t, b.start(t, "short"))
	require.ErrorIs(t, workflows.LockError(err), lockcore.ErrBusy)
	var first, second client.WorkflowRun
	first = b.start(t, "W")
	b.untilBusy(t, first)
	second = b.start(t, "W")
	b.untilBusy(t, second)
	require.NoError(t, other.Leave(t.Context()))
	for _, run := range []client.WorkflowRun{first, second} {
		events, err := b.end(t, run)
		require.NoError(t, err)
		require.Equal(t, []string{"Look", "completed"}, commands(&historypb.History{Events: events}))
	}
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)
}

// A saga may begin on a worker with a rule and end on one without it: the rule guards what the first one runs, and leaves nothing.
func TestRule_RemovedDuringSaga_SagaEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		err := pay(ctx, payment{account.Name})
		receive(ctx, "go on")
		return errors.Join(err, pay(ctx, payment{account.Name}))
	})
	plugin, err := worker.NewPlugin(worker.Options{Locker: b.locker.Locker, Rules: []worker.Rule{payments()}})
	require.NoError(t, err)
	with := b.work(t, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}}, lookAt(b))
	run := b.start(t, "W")
	b.untilWritten(t, 1)
	b.untilIdle(t, run)
	b.requireFree(t, account.Name)
	with.Stop()
	b.work(t, sdkworker.Options{}, lookAt(b))
	b.signal(t, run, "go on")
	events, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, []string{"Look", "Look", "completed"}, commands(&historypb.History{Events: events}))
	require.Equal(t, []string{"free: false", "free: true"}, b.read())
	b.requireFree(t, account.Name)
}

func TestRule_LocalActivity_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: time.Minute})
		return workflow.ExecuteLocalActivity(ctx, "Look", payment{account.Name}).Get(ctx, nil)
	})
	b.work(t, sdkworker.Options{}, lookAt(b))
	_, err := b.end(t, b.start(t, "W"))
	require.ErrorContains(t, err, "workflow.ExecuteActivity")
	require.Empty(t, b.read())
}

func TestRule_UnreadableArgument_StepFails(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	b.workflow("number", func(ctx workflow.Context) error { return pay(ctx, 42) })
	b.work(t, sdkworker.Options{}, map[string]any{"Look": func(ctx context.Context, _ any) error { return b.look(ctx) }})
	_, err := b.end(t, b.start(t, "number"))
	require.ErrorContains(t, err, "float64")
	require.ErrorContains(t, err, "payment")
	require.Empty(t, b.read())
}

func TestRule_Invalid_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, rules := range map[string][]worker.Rule{
		"no name":     {worker.RuleFor("", func(payment) []lockcore.Resource { return nil })},
		"Lockstep's":  {worker.RuleFor("lockstep.Wait", func(any) []lockcore.Resource { return nil })},
		"no function": {worker.RuleFor[payment]("Look", nil)},
		"twice":       {payments(), payments()},
	} {
		_, err := worker.NewPlugin(worker.Options{Locker: b.locker.Locker, Rules: rules})
		require.ErrorIs(t, err, lockcore.ErrInvalid, name)
	}
}

func TestRule_UnknownActivity_WorkerDoesNotStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	start := func(rule worker.Rule) error {
		plugin, err := worker.NewPlugin(worker.Options{Locker: b.locker.Locker, Rules: []worker.Rule{rule}})
		require.NoError(t, err)
		w := sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}})
		defer w.Stop()
		return w.Start()
	}
	err := start(payments())
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	require.ErrorContains(t, err, "Look")
	require.NoError(t, start(payments().Elsewhere()))
}

type shop struct{}

func (*shop) Buy(context.Context, payment) error { return nil }

func TestRule_OtherArgumentType_WorkerDoesNotStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	look := worker.RuleFor("Look", func(payment) []lockcore.Resource { return nil })
	named := func(name string) worker.Rule {
		return worker.RuleFor(name, func(payment) []lockcore.Resource { return nil })
	}
	for name, c := range map[string]struct {
		activity any
		as       string
		rule     worker.Rule
		misfit   string
	}{
		"the type":          {func(context.Context, payment) error { return nil }, "Look", look, ""},
		"without a context": {func(payment) error { return nil }, "Look", look, ""},
		"a method":          {&shop{}, "", named("Buy"), ""},
		"a prefixed method": {&shop{}, "shop.", named("shop.Buy"), ""},
		"anything":          {func(context.Context, any) error { return nil }, "Look", look, ""},
		"any rule":          {func(context.Context) error { return nil }, "Look", worker.RuleFor("Look", func(any) []lockcore.Resource { return nil }), ""},
		"a pointer to it":   {func(context.Context, *payment) error { return nil }, "Look", look, "takes an argument of type *worker_test.payment"},
		"a number":          {func(context.Context, int) error { return nil }, "Look", look, "takes an argument of type int"},
		"nothing":           {func(context.Context) error { return nil }, "Look", look, "takes no argument"},
	} {
		plugin, err := worker.NewPlugin(worker.Options{Locker: b.locker.Locker, Rules: []worker.Rule{c.rule}})
		require.NoError(t, err)
		w := sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin, plugin}})
		w.RegisterActivityWithOptions(c.activity, activity.RegisterOptions{Name: c.as})
		err = w.Start()
		if c.misfit == "" {
			require.NoError(t, err, name)
			w.Stop()
			continue
		}
		require.ErrorIs(t, err, lockcore.ErrInvalid, name)
		require.ErrorContains(t, err, c.misfit, name)
		require.ErrorContains(t, err, "a worker_test.payment", name)
	}
}

// A plugin with rules would guard nothing if a plugin without them came first.
func TestRules_DifferInTwoPlugins_AreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	with, err := worker.NewPlugin(worker.Options{Locker: b.locker.Locker, Rules: []worker.Rule{payments()}})
	require.NoError(t, err)
	require.Panics(t, func() {
		sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin, with}})
	})
	require.NotPanics(t, func() { sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{with, with}}) })
}

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

func TestRule_DynamicActivityForInterface_WorkerDoesNotStart(t *testing.T) {
	t.Parallel()
	b := setup(t, worker.RuleFor("Look", func(fmt.Stringer) []lockcore.Resource { return nil }))
	err := b.workDynamically(t)
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	require.ErrorContains(t, err, "dynamic activity")
	require.ErrorContains(t, err, "fmt.Stringer")
}
