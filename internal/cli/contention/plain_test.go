package contention

import (
	"bytes"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Plain Go names its locks as it likes: without a namespace's ID, a slash makes no workflow.
func TestPlainLockIDIsNoWorkflow(t *testing.T) {
	t.Parallel()
	s := &scene{}
	plain := func(id string) attrs { return attrs{telemetry.LockID: id, telemetry.Owner: ""} }
	blocker := attrs{telemetry.BlockedByID: "billing/hourly/eu", telemetry.BlockedByFence: 9}
	part := attrs{telemetry.LockID: "billing/nightly", telemetry.Owner: "", telemetry.Part: "1/Debit"}
	expired := attrs{telemetry.Outcome: telemetry.OutcomeExpired, telemetry.EndedBy: "billing/nightly"}
	maps.Copy(expired, plain("billing/weekly"))
	s.hold("r", "", 1, 0, 1000, expired)
	s.wait("r", "", 2, 100, 1000, part)
	s.hold("r", "", 2, 1000, 1100, plain("billing/nightly"))
	s.wait("q", "", 3, 100, 1000, plain("billing/nightly"), blocker)
	s.wait("p", "", 4, 100, 200, attrs{telemetry.LockID: "billing/nightly", telemetry.Owner: "", telemetry.Outcome: telemetry.OutcomeDeadlock})
	s.types("Billing", "nightly", "weekly", "hourly")
	r := s.report(t)
	for i := range r.Holds {
		require.Empty(t, r.Holds[i].Workflow+r.Holds[i].WorkflowType)
	}
	for i := range r.Waits {
		require.Empty(t, r.Waits[i].Workflow+r.Waits[i].WorkflowType+r.Waits[i].Run)
		for _, b := range r.Waits[i].Blockers {
			require.Empty(t, b.Workflow)
		}
	}
	require.Empty(t, r.Types)
	require.Equal(t, "billing/nightly", r.Deadlocks[0].Victim)
	var table bytes.Buffer
	require.NoError(t, WriteTable(&table, r, 10))
	require.NotContains(t, table.String(), "Billing")
	require.Contains(t, table.String(), "its room went to billing/nightly")
}
