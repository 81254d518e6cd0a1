package recipes

import (
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Order keeps its account locked until it has shipped or refunded, and the printer only while it prints.
func Order(ctx workflow.Context, account string) error {
	ctx = withOptions(ctx)
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		saga := workflows.Guard(ctx, lockcore.Exclusive("account/"+account))
		step := workflows.WithLocks(ctx, workflows.Locks{
			Resources: []lockcore.Resource{lockcore.Exclusive("printer")}, Scope: workflows.ScopeStep,
		})
		if err := s.Step(saga, work.Charge, work.Refund, account).Get(ctx, nil); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(step, work.Print, account).Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ExecuteActivity(saga, work.Ship, account).Get(ctx, nil)
	})
}

// Debit works on one account of a tenant, at the same time as debits of the tenant's other accounts.
func Debit(ctx workflow.Context, tenant, account string) error {
	root := "tenant/" + tenant
	ctx = workflows.Guard(withOptions(ctx), lockcore.Shared(root), lockcore.Exclusive(root+"/account/"+account))
	return workflow.ExecuteActivity(ctx, work.Charge, account).Get(ctx, nil)
}

// CloseMonth works on a whole tenant, while no account of it is in use.
func CloseMonth(ctx workflow.Context, tenant string) error {
	ctx = workflows.Guard(withOptions(ctx), lockcore.Exclusive("tenant/"+tenant))
	return workflow.ExecuteActivity(ctx, work.Bill, tenant).Get(ctx, nil)
}

// CallPartner is one of at most 20 calls at a time, or as many as a policy allows.
func CallPartner(ctx workflow.Context, id string) error {
	ctx = workflows.Guard(withOptions(ctx), lockcore.SharedLimit("partner/bank", 20))
	return workflow.ExecuteActivity(ctx, work.Charge, id).Get(ctx, nil)
}
