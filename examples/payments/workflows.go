package main

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Payment moves money between two accounts.
type Payment struct {
	From, To string
	Cents    int64
	// Attempt is the attempt of the saga, set by Transfer.
	Attempt int
}

var bank *Bank // names its activities

// Transfer is a saga over two accounts, which no other saga enters before it has ended.
func Transfer(ctx workflow.Context, p Payment) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, lockcore.Exclusive("account/"+p.From), lockcore.Exclusive("account/"+p.To))
		p.Attempt = s.Attempt() // part of the idempotency keys: a deadlock undoes the saga and starts it again
		// If the saga fails, Refund undoes what Debit may have done, and TakeBack what Credit may have done.
		if err := s.Step(ctx, bank.Debit, bank.Refund, p).Get(ctx, nil); err != nil {
			return err
		}
		return s.Step(ctx, bank.Credit, bank.TakeBack, p).Get(ctx, nil)
	})
}

// Notify sends a letter through a printer that takes two at a time, and writes a statement under the lock that a rule gives it.
func Notify(ctx workflow.Context, account string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
	if err := workflow.ExecuteActivity(ctx, bank.Statement, account).Get(ctx, nil); err != nil {
		return err
	}
	printer := workflows.Guard(ctx, lockcore.SharedLimit("printer", 2)) // a semaphore with limit 2
	return workflow.ExecuteActivity(printer, bank.Print, account).Get(ctx, nil)
}

// Freeze keeps other workflows off an account for a second.
func Freeze(ctx workflow.Context, account string) error {
	hold, err := workflows.Lock(ctx, workflows.Locks{
		Resources: []lockcore.Resource{lockcore.Exclusive("account/" + account)},
	})
	if err != nil {
		return err
	}
	err = workflow.Sleep(ctx, time.Second) // or a signal, a child workflow, a person's decision
	if lost := hold.Release(ctx); err == nil {
		err = lost // another party may have had the lock
	}
	return err
}

// statementLocks is the rule of Statement: no other workflow changes the account while it is written.
func statementLocks(account string) []lockcore.Resource {
	return []lockcore.Resource{lockcore.Shared("account/" + account)}
}
