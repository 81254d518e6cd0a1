package worker_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

type payment struct{ Account string }

func payments(scope workflows.Scope) workflows.Rule {
	return workflows.RuleFor("Look", func(p payment) workflows.Locks {
		return workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive(p.Account)}, Scope: scope}
	})
}

func lookAt(b *bundle) map[string]any {
	return map[string]any{"Look": func(ctx context.Context, _ payment) error { return b.look(ctx) }}
}

func pay(ctx workflow.Context, argument any) error {
	return workflow.ExecuteActivity(ctx, "Look", argument).Get(ctx, nil)
}

func TestARuleGuardsStepsOfWorkflowsThatKnowNothingOfIt(t *testing.T) {
	t.Parallel()
	b := setup(t, payments(""))
	b.workflow("typed", func(ctx workflow.Context) error { return pay(ctx, payment{account.Name}) })
	b.workflow("pointer", func(ctx workflow.Context) error { return pay(ctx, &payment{account.Name}) })
	b.workflow("json", func(ctx workflow.Context) error { return pay(ctx, map[string]any{"Account": account.Name}) })
	b.work(t, sdkworker.Options{}, lookAt(b))
	for _, name := range []string{"typed", "pointer", "json"} {
		_, err := b.end(t, b.start(t, name))
		require.NoError(t, err)
		b.requireFree(t, account.Name)
	}
	require.Equal(t, []string{"free: false", "free: false", "free: false"}, b.read())
}

func TestAContextCountsMoreThanARule(t *testing.T) {
	t.Parallel()
	b := setup(t, payments(""))
	b.workflow("unguarded", func(ctx workflow.Context) error { return pay(workflows.Unguarded(ctx), payment{account.Name}) })
	b.workflow("other", func(ctx workflow.Context) error {
		return pay(workflows.Guard(ctx, lockcore.Exclusive("other")), payment{account.Name})
	})
	b.work(t, sdkworker.Options{}, lookAt(b))
	for _, name := range []string{"unguarded", "other"} {
		_, err := b.end(t, b.start(t, name))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"free: true", "free: true"}, b.read())
}

func TestAnArgumentThatARuleCannotReadFailsTheStep(t *testing.T) {
	t.Parallel()
	b := setup(t, payments(""))
	b.workflow("number", func(ctx workflow.Context) error { return pay(ctx, 42) })
	b.workflow("nothing", func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "Look").Get(ctx, nil) })
	b.work(t, sdkworker.Options{}, map[string]any{"Look": func(ctx context.Context, _ any) error { return b.look(ctx) }})
	for name, want := range map[string]string{"number": "a int", "nothing": "none"} {
		_, err := b.end(t, b.start(t, name))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "payment")
	}
	require.Empty(t, b.read())
}

func sagaOfTwo(ctx workflow.Context) error {
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
		if err := pay(ctx, payment{account.Name}); err != nil {
			return err
		}
		return pay(ctx, payment{"another"})
	})
}

func TestARuleInASagaHoldsUntilItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, payments(""))
	b.workflow("saga", sagaOfTwo)
	b.work(t, sdkworker.Options{}, lookAt(b))
	events, err := b.end(t, b.start(t, "saga"))
	require.NoError(t, err)
	require.Equal(t, []string{"free: false", "free: false"}, b.read())
	b.requireFree(t, account.Name)

	// Without the rule the release that stands in the history has no command; the retired rule still makes it.
	b.rules = nil
	require.Error(t, b.tryReplay(t, &historypb.History{Events: events}))
	b.rules = []workflows.Rule{payments("").Retired()}
	b.replay(t, &historypb.History{Events: events})
}

// A run that began without the rule goes on as it began: the release at its end would be a command that is not in its
// history.
func TestARuleThatComesWhileARunIsInFlightAddsNoCommandToIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("saga", func(ctx workflow.Context) error {
		if err := sagaOfTwo(ctx); err != nil {
			return err
		}
		return pay(ctx, payment{account.Name})
	})
	b.work(t, sdkworker.Options{}, lookAt(b))
	events, err := b.end(t, b.start(t, "saga"))
	require.NoError(t, err)
	for _, scope := range []workflows.Scope{"", workflows.ScopeStep, workflows.ScopeSaga} {
		b.rules = []workflows.Rule{payments(scope)}
		b.replay(t, &historypb.History{Events: events})
	}
}

func TestRulesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, rules := range map[string][]workflows.Rule{
		"no name":     {workflows.RuleFor("", func(payment) workflows.Locks { return workflows.Locks{} })},
		"no function": {workflows.RuleFor[payment]("Look", nil)},
		"twice":       {payments(""), payments("")},
	} {
		_, err := worker.NewPlugin(worker.Options{Locker: b.locker, Rules: rules})
		require.ErrorIs(t, err, lockcore.ErrInvalid, name)
	}
}

func TestARuleForAnActivityThatIsNotThereKeepsTheWorkerFromStarting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	start := func(rule workflows.Rule) error {
		plugin, err := worker.NewPlugin(worker.Options{Locker: b.locker, Rules: []workflows.Rule{rule}})
		require.NoError(t, err)
		w := sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}})
		defer w.Stop()
		return w.Start()
	}
	err := start(payments(""))
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	require.ErrorContains(t, err, "Look")
	require.NoError(t, start(payments("").Elsewhere()))
}

type shop struct{}

func (*shop) Buy(context.Context, payment) error { return nil }

func byReference(context.Context, *payment) error { return nil }

func TestARuleThatCannotLookAtWhatItsActivityTakesKeepsTheWorkerFromStarting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type other struct{ Customer string }
	type omits struct {
		Account string `json:"account"`
		Extra   string `json:"extra,omitempty"`
	}
	type embeds struct{ payment }
	type more struct{ Account, Customer string }
	type less struct{}
	for name, c := range map[string]struct {
		activity any
		as, rule string
		misfit   string
	}{
		"the type":           {activity: func(context.Context, payment) error { return nil }, as: "Look"},
		"without a context":  {activity: func(payment) error { return nil }, as: "Look"},
		"a pointer to it":    {activity: byReference, rule: "byReference"},
		"a method":           {activity: &shop{}, rule: "Buy"},
		"a prefixed method":  {activity: &shop{}, as: "shop.", rule: "shop.Buy"},
		"anything":           {activity: func(context.Context, any) error { return nil }, as: "Look"},
		"a map":              {activity: func(context.Context, map[string]string) error { return nil }, as: "Look"},
		"fewer fields":       {activity: func(context.Context, less) error { return nil }, as: "Look"},
		"one embedded":       {activity: func(context.Context, embeds) error { return nil }, as: "Look"},
		"a field left out":   {activity: func(context.Context, omits) error { return nil }, as: "Look", misfit: `"extra"`},
		"another struct":     {activity: func(context.Context, other) error { return nil }, as: "Look", misfit: `a worker_test.other, which has "Customer" beside`},
		"one of more fields": {activity: func(context.Context, *more) error { return nil }, as: "Look", misfit: `"Customer"`},
		"a number":           {activity: func(context.Context, int) error { return nil }, as: "Look", misfit: "takes a int"},
		"a list":             {activity: func(context.Context, []payment) error { return nil }, as: "Look", misfit: "takes a []worker_test.payment"},
		"nothing":            {activity: func(context.Context) error { return nil }, as: "Look", misfit: "takes no argument"},
	} {
		rule := payments("")
		if c.rule != "" {
			rule.Activity = c.rule
		}
		plugin, err := worker.NewPlugin(worker.Options{Locker: b.locker, Rules: []workflows.Rule{rule}})
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
		require.ErrorContains(t, err, "worker_test.payment", name)
	}
}

// odd has JSON of its own, which panics or fails for a value that is not filled in.
type odd struct{ Inner *struct{ Name string } }

func (o odd) MarshalJSON() ([]byte, error) { return json.Marshal(o.Inner.Name) }

func TestARuleForATypeWithJSONOfItsOwnIsNoMisfit(t *testing.T) {
	t.Parallel()
	rule := workflows.RuleFor("Look", func(*odd) workflows.Locks { return workflows.Locks{} })
	require.Empty(t, rule.Misfit(reflect.TypeFor[odd]()))
	require.Empty(t, rule.Misfit(reflect.TypeFor[struct{ Odd odd }]()))
	anything := workflows.RuleFor("Look", func(any) workflows.Locks { return workflows.Locks{} })
	require.Empty(t, anything.Misfit(nil), "a workflow may pass what the activity does not take")
	text := workflows.RuleFor("Look", func(string) workflows.Locks { return workflows.Locks{} })
	require.NotEmpty(t, text.Misfit(reflect.TypeFor[[]byte]()), "its JSON would name another resource")
	require.Empty(t, text.Misfit(reflect.TypeFor[*string]()))
}

// Beside a plugin without its rules, one with rules would guard nothing.
func TestTwoPluginsWithDifferentRulesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	with, err := worker.NewPlugin(worker.Options{Locker: b.locker, Cluster: cluster, Rules: []workflows.Rule{payments("")}})
	require.NoError(t, err)
	require.Panics(t, func() {
		sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{b.plugin, with}})
	})
	require.NotPanics(t, func() { sdkworker.New(b.client, b.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{with, with}}) })
}
