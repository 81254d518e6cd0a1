package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"
)

type compensation struct{}

func withLocks(ctx workflow.Context, _ Locks) workflow.Context { return ctx }
func withoutLocks(ctx workflow.Context) workflow.Context       { return ctx }
func lockError(error) error                                    { return nil }
func activityName(any) string                                  { return "" }

func runSaga(workflow.Context, SagaOptions, func(workflow.Context, *Saga) error) error {
	return errors.ErrUnsupported
}

func (s *Saga) add(workflow.Context, string, func(workflow.Context) error) {}

func (e *SagaError) Error() string         { return e.Err.Error() }
func (e *CompensationError) Error() string { return fmt.Sprint(e.Step, e.Err) }
