package demo

import (
	"strings"
	"testing"

	"go.temporal.io/sdk/temporal"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
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

// A newcomer must not take the deadlocks for a defect.
func TestReport_Deadlocks_AreOnPurpose(t *testing.T) {
	t.Parallel()
	for deadlocks, want := range map[int]string{3: "deadlocks +3, on purpose: a transfer locks its second account only when it needs it", 0: "deadlocks +0\n"} {
		var b strings.Builder
		r := &contention.Report{}
		r.Totals.Deadlocks = deadlocks
		require.NoError(t, (&results{locks: r}).report(&run{cfg: Config{Out: &b, Guards: true}}))
		require.Regexp(t, want, b.String())
	}
}
