package demo

import (
	"testing"

	"go.temporal.io/sdk/temporal"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// A transfer with a lost lock was undone, and counts as compensated. If it could not be undone, it counts as failed.
func TestCount_LostLock_IsCompensatedUnlessUndoFailed(t *testing.T) {
	t.Parallel()
	lost := temporal.NewNonRetryableApplicationError("lost", wire.FailureLost, nil)
	s := &results{}
	s.count("undone", lost)
	require.Equal(t, []int{1, 0, 1}, []int{s.compensated, s.failed, s.lost})
	s.count("stuck", temporal.NewNonRetryableApplicationError("a compensation failed", wire.FailureSagaFailed, lost))
	require.Equal(t, []int{1, 1, 1}, []int{s.compensated, s.failed, s.lost})
}
