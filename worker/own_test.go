package worker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// A Lock and a saga under a context with another data converter: Lockstep's own activities are read with that of the run.
func TestOwnActivities_OtherConverter_AreRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), seal{of: "another team"})
	_, err := b.run(t, func(ctx workflow.Context) error {
		ctx = workflow.WithDataConverter(ctx, own)
		hold, err := workflows.Lock(ctx, locks(account))
		if err != nil {
			return err
		}
		return errors.Join(hold.Verify(ctx), hold.Release(ctx))
	})
	require.NoError(t, err)
	b.requireFree(t, account.Name)
}

type tenantKey struct{}

// tenants is a context propagator that refuses to schedule anything without a tenant.
type tenants struct{}

func (tenants) Inject(context.Context, workflow.HeaderWriter) error { return nil }

func (tenants) InjectFromWorkflow(ctx workflow.Context, w workflow.HeaderWriter) error {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		return errors.New("there is no tenant")
	}
	p, err := converter.GetDefaultDataConverter().ToPayload(tenant)
	if err == nil {
		w.Set("tenant", p)
	}
	return err
}

func (tenants) Extract(ctx context.Context, _ workflow.HeaderReader) (context.Context, error) {
	return ctx, nil
}

func (tenants) ExtractToWorkflow(ctx workflow.Context, _ workflow.HeaderReader) (workflow.Context, error) {
	return ctx, nil
}

// A context propagator that needs a value which the workflow sets: the own activities have the values of the caller's context.
func TestOwnActivities_PropagatorNeedsAValue_HaveIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reach(t, client.Options{ContextPropagators: []workflow.ContextPropagator{tenants{}}})
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithValue(ctx, tenantKey{}, "a")
		err := saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
			return errors.Join(s.Step(workflows.Guard(ctx, account), "Nothing", "Nothing").Get(ctx, nil), errors.New("it fails"))
		})
		if err == nil {
			return errors.New("the saga did not fail")
		}
		hold, err := workflows.Lock(ctx, locks(account2))
		if err != nil {
			return err
		}
		err = hold.Release(ctx)
		receive(ctx, "end")
		return err
	})
	b.serve(t)
	run := b.start(t, "W")
	b.requireFree(t, account.Name)
	b.requireFree(t, account2.Name)
	b.signal(t, run, "end")
	b.succeed(t, run)
}
