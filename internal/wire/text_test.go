package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

const namespaceID = "5b1e4c3a-0000-4000-8000-00000000000a"

func messageOf(t *testing.T, err error) string {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return app.Message()
}

// People know workflows by their IDs. Lock IDs that a user has chosen, and resources, are not
// changed.
func TestText_OwnNamespaceID_IsLeftOut(t *testing.T) {
	t.Parallel()
	own, other := namespaceID+"/order-7", namespaceID+"/order-3"
	busy := &lockcore.BusyError{Resource: "account/42", LockID: own, Holders: []lockcore.Holder{{LockID: other, Mode: lockcore.ModeExclusive}}}
	for name, err := range map[string]error{
		"busy": Failure(busy), "parked": ParkFailure(busy, lockcore.StepRequest{Caller: lockcore.Caller{LockID: own}}, ""), "tried": TriedFailure(busy, ""),
		"lost":       Failure(&lockcore.LostError{Resource: "account/42", LockID: own, By: other}),
		"superseded": Failure(&lockcore.SupersededError{Resource: "account/42", LockID: own}),
		"deadlock":   Failure(&lockcore.DeadlockError{Resource: "account/42", LockID: own, Cycle: own + " → " + other}),
		"other run":  Failure(&lockcore.OtherRunError{Resource: "account/42", LockID: own}),
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

// A workflow's details show the message as long as the step waits, and others come and go meanwhile.
func TestParkFailure_Message_HasItsTimeAndNoPosition(t *testing.T) {
	t.Parallel()
	busy := &lockcore.BusyError{Resource: "r", LockID: "me", Position: 2, Waiting: 2, At: time.Date(2026, 1, 2, 15, 35, 2, 0, time.UTC)}
	parked := ParkFailure(busy, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "me"}}, "")
	require.Equal(t, `lockstep: "r" is busy for "me" (as of 2026-01-02 15:35:02 UTC): others are ahead in the queue`, messageOf(t, parked))
	details, _ := Parked(parked)
	require.Equal(t, 2, details.Position)
	require.Contains(t, messageOf(t, WaitingFailure(busy, time.Second)), "(position 2 of 2 in the queue, as of 2026-01-02 15:35:02 UTC)")
}

func TestText_LostLease_GivesTheReason(t *testing.T) {
	t.Parallel()
	require.Contains(t, messageOf(t, Failure(&lockcore.LostError{Resource: "r", LockID: "a", By: "b"})), "its lease expired before it was renewed")
	require.NotContains(t, messageOf(t, Failure(&lockcore.LostError{Resource: "r", LockID: "a", By: "b", Reason: "forced"})), "its time was over")
}

func TestRewriteField_RequestField_NamesTheUsersField(t *testing.T) {
	t.Parallel()
	refused := &lockcore.InvalidError{Field: "Request.HoldTTL", Value: "1s", Bound: "not less than Request.TTL"}
	got := RewriteField(refused, "Locks.").Error()
	require.Contains(t, got, "Locks.HoldTTL")
	require.Contains(t, got, "Locks.TTL")
	require.NotContains(t, got, "Request")
	require.Equal(t, lockcore.ErrBusy, RewriteField(lockcore.ErrBusy, "Locks."))
}

func FuzzCut(f *testing.F) {
	f.Add("äöü", 3)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 0 || n > 1<<16 {
			return
		}
		got := Cut(s, n)
		require.LessOrEqual(t, len(got), n)
		require.True(t, strings.HasPrefix(s, got))
		if utf8.ValidString(s) {
			require.True(t, utf8.ValidString(got))
			require.Greater(t, len(got)+utf8.UTFMax, min(n, len(s)))
		}
	})
}

func TestDuration_JSON_IsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		`"30s"`: 30 * time.Second, `"1m30s"`: 90 * time.Second, `"100ms"`: 100 * time.Millisecond, `"forever"`: lockcore.Forever, `"0s"`: 0,
	} {
		var d Duration
		require.NoError(t, json.Unmarshal([]byte(text), &d))
		require.Equal(t, want, time.Duration(d))
		back, err := json.Marshal(d)
		require.NoError(t, err)
		var again Duration
		require.NoError(t, json.Unmarshal(back, &again))
		require.Equal(t, d, again)
	}
}

func TestDuration_NoUnit_IsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`30`, `"30"`, `"soon"`, `{}`, `true`, `9223372036854775807`} {
		var d Duration
		require.ErrorIs(t, json.Unmarshal([]byte(text), &d), lockcore.ErrInvalid, text)
	}
	var d Duration
	require.NoError(t, json.Unmarshal([]byte(`null`), &d))
	require.Zero(t, d)
}

func FuzzDuration(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(lockcore.Forever))
	f.Add(int64(-1))
	f.Fuzz(func(t *testing.T, n int64) {
		text, err := json.Marshal(Duration(n))
		require.NoError(t, err)
		var d Duration
		require.NoError(t, json.Unmarshal(text, &d))
		require.Equal(t, Duration(n), d)
	})
}
