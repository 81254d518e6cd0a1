package wire

import (
	"testing"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/temporal"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

const namespaceID = "5b1e4c3a-0000-4000-8000-00000000000a"

func messageOf(t *testing.T, err error) string {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return app.Message()
}

// People know workflows by their IDs. Lock IDs that a user has chosen, and resources, stay as they
// are.
func TestTextsNameWorkflowsWithoutTheirNamespaceID(t *testing.T) {
	t.Parallel()
	own, other := namespaceID+"/order-7", namespaceID+"/order-3"
	busy := &lockcore.BusyError{Resource: "account/42", LockID: own, Holders: []lockcore.Holder{{LockID: other, Mode: lockcore.ModeExclusive}}}
	for name, err := range map[string]error{
		"busy": Failure(busy), "parked": ParkFailure(busy, party.Request{LockID: own}, ""), "tried": TriedFailure(busy, ""),
		"lost":       Failure(&lockcore.LostError{Resource: "account/42", LockID: own, By: other}),
		"superseded": Failure(&lockcore.SupersededError{Resource: "account/42", LockID: own}),
		"deadlock":   Failure(&lockcore.DeadlockError{Resource: "account/42", LockID: own, Cycle: own + " → " + other}),
		"other run":  Failure(&party.OtherRunError{Resource: "account/42", LockID: own}),
		"waited":     NewWaitError(busy, false),
	} {
		got := messageOf(t, err)
		require.NotContains(t, got, namespaceID, name)
		require.Contains(t, got, "account/42", name)
		require.Contains(t, got, "order-7", name)
	}
	var details BusyDetails
	var app *temporal.ApplicationError
	require.ErrorAs(t, Failure(busy), &app)
	require.NoError(t, app.Details(&details))
	require.Equal(t, own, details.LockID)
	chosen := &lockcore.BusyError{Resource: "account/42", LockID: "account/7"}
	require.Equal(t, chosen.Error(), messageOf(t, Failure(chosen)))
}

func TestALossSaysWhy(t *testing.T) {
	t.Parallel()
	require.Contains(t, messageOf(t, Failure(&lockcore.LostError{Resource: "r", LockID: "a", By: "b"})), "its time was over before it was renewed")
	require.NotContains(t, messageOf(t, Failure(&lockcore.LostError{Resource: "r", LockID: "a", By: "b", Reason: "forced"})), "its time was over")
}

func TestARefusalNamesWhatTheUserWrote(t *testing.T) {
	t.Parallel()
	refused := &lockcore.InvalidError{Field: "Request.HoldTTL", Value: "1s", Bound: "not less than Request.TTL"}
	got := Asked(refused, "Locks.").Error()
	require.Contains(t, got, "Locks.HoldTTL")
	require.Contains(t, got, "Locks.TTL")
	require.NotContains(t, got, "Request")
	require.Equal(t, lockcore.ErrBusy, Asked(lockcore.ErrBusy, "Locks."))
}
