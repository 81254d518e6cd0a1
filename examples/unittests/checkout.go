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
	OnCharge func(ctx context.Context, seat string) (charge string, err error)
	OnRefund func(ctx context.Context, seat, charge string) error
	OnIssue  func(ctx context.Context, seat string) error
}

// Charge takes the money, and returns the ID of the charge.
func (s *Shop) Charge(ctx context.Context, seat string) (string, error) { return s.OnCharge(ctx, seat) }

// Refund gives it back. If the ID is empty, because Charge failed or did not answer, it looks for a charge for the seat.
func (s *Shop) Refund(ctx context.Context, seat, charge string) error {
	return s.OnRefund(ctx, seat, charge)
}

// Issue issues the ticket.
func (s *Shop) Issue(ctx context.Context, seat string) error { return s.OnIssue(ctx, seat) }

// Checkout sells a seat: it charges and issues the ticket while no other customer can, or gives the money back.
func Checkout(ctx workflow.Context, seat string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	err := workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{lockcore.Exclusive(seat)}, MaxWait: patience})
		var shop *Shop
		var charge string // the ID, once Charge has returned
		err := s.Compensate(ctx, func(ctx workflow.Context) error {
			return workflow.ExecuteActivity(ctx, shop.Refund, seat, charge).Get(ctx, nil)
		})
		if err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(ctx, shop.Charge, seat).Get(ctx, &charge); err != nil {
			return err
		}
		return workflow.ExecuteActivity(ctx, shop.Issue, seat).Get(ctx, nil)
	})
	if errors.Is(err, lockcore.ErrBusy) {
		return temporal.NewNonRetryableApplicationError(seat+" is being sold to another customer", FailureTaken, err)
	}
	return err
}
