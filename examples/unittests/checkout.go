package unittests

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// FailureTaken is the failure type of a checkout of a seat that another customer is buying.
const FailureTaken = "unittests.SeatTaken"

// patience is the time that a customer waits for another one who is buying the same seat.
const patience = 5 * time.Minute

// Shop has the activities. Tests replace its functions.
type Shop struct {
	OnCharge, OnRefund, OnIssue func(ctx context.Context, seat string) error
}

// Charge takes the money.
func (s *Shop) Charge(ctx context.Context, seat string) error { return s.OnCharge(ctx, seat) }

// Refund gives it back.
func (s *Shop) Refund(ctx context.Context, seat string) error { return s.OnRefund(ctx, seat) }

// Issue issues the ticket.
func (s *Shop) Issue(ctx context.Context, seat string) error { return s.OnIssue(ctx, seat) }

// Checkout sells a seat: it charges and issues the ticket while no other customer can, or gives the money back.
func Checkout(ctx workflow.Context, seat string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive(seat)}, MaxWait: patience})
		var shop *Shop
		s.CompensateWith(ctx, shop.Refund, seat)
		if err := workflow.ExecuteActivity(ctx, shop.Charge, seat).Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ExecuteActivity(ctx, shop.Issue, seat).Get(ctx, nil)
	})
	if errors.Is(err, lockcore.ErrBusy) {
		return temporal.NewNonRetryableApplicationError(seat+" is being sold to another customer", FailureTaken, err)
	}
	return err
}
