package demo

import (
	"testing"

	"go.temporal.io/sdk/temporal"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// A transfer that was told of a lost lock was undone. One that could not be undone after it counts as failed.
func TestALostLockIsNoWrongResultUnlessTheSagaCouldNotBeUndone(t *testing.T) {
	t.Parallel()
	lost := temporal.NewNonRetryableApplicationError("lost", wire.FailureLost, nil)
	s := &results{}
	s.count("undone", lost)
	require.Equal(t, []int{1, 0, 1}, []int{s.compensated, s.failed, s.lost})
	s.count("stuck", temporal.NewNonRetryableApplicationError("a compensation failed", wire.FailureSagaFailed, lost))
	require.Equal(t, []int{1, 1, 1}, []int{s.compensated, s.failed, s.lost})
}
