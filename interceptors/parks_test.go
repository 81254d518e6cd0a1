package interceptors

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestAStepSaysThatItNeverRanOnlyIfThatIsKnown(t *testing.T) {
	t.Parallel()
	own, reset := sagaGuard(), sagaGuard()
	own.Run, reset.Run = "default-test-run-id", "the run before a reset"
	long := time.Now().Add(-time.Hour)
	undo, undoOfBefore := own, reset
	undo.Undoes, undo.Started = "1/Debit", time.Now()
	undoOfBefore.Undoes, undoOfBefore.Started = undo.Undoes, undo.Started
	undoOfAReset := undo
	undoOfAReset.Before = "the run before a reset"
	for name, tc := range map[string]struct {
		guard protocol.Guard
		since time.Time
		want  string
	}{
		"known": {own, long, own.Part}, "scheduled by a run before": {reset, long, ""}, "it may have held": {own, time.Time{}, ""},
		"evidence is too young":           {own, time.Now().Add(time.Hour), ""},
		"the step that it undoes, too":    {undo, long, "1/Debit"},
		"the step may have run before it": {undo, time.Now(), ""},
		"the run before may have held it": {undoOfAReset, long, ""}, "a run before scheduled the undo": {undoOfBefore, long, ""},
	} {
		for _, verdict := range []error{&lockcore.DeadlockError{Resource: "account/1", NotHeldSince: tc.since}, &lockcore.BusyError{Resource: "account/1", NotHeldSince: tc.since}} {
			l := &fakeLocker{enter: func(context.Context, int, lockcore.Request) error { return verdict }}
			tc.guard.Park = true
			_, err := runStep(t, l, tc.guard, done)
			var details struct {
				NeverRan string `json:"neverRan"`
			}
			require.NoError(t, application(t, err).Details(&details))
			require.Equal(t, tc.want, details.NeverRan, "%s: %v", name, err)
		}
	}
}

func parkedAs(d protocol.BusyDetails) protocol.ParkedDetails {
	return protocol.ParkedDetails{BusyDetails: d}
}

// What the workflow answers by waiting is a failure of its own type, and uses no attempt.
func TestAStepThatCannotHaveItsLocksParks(t *testing.T) {
	t.Parallel()
	unavailable := protocol.ParkedDetails{Unavailable: true}
	unavailable.Resource, unavailable.LockID = "account/1", "default-test-namespace/default-test-workflow-id"
	for name, tc := range map[string]struct {
		err  error
		want protocol.ParkedDetails
	}{
		"busy":      {&lockcore.BusyError{Resource: "rates", LockID: "w", Position: 2}, parkedAs(protocol.BusyDetails{Resource: "rates", LockID: "w", Position: 2})},
		"full":      {&lockcore.BusyError{Resource: "rates", Waiting: 9, Full: true}, parkedAs(protocol.BusyDetails{Resource: "rates", Waiting: 9, Full: true})},
		"no answer": {&lockcore.UnknownOutcomeError{Op: "acquire", Err: errors.New("reset")}, unavailable},
		"no server": {errors.New("server selection error"), unavailable},
	} {
		guard := sagaGuard()
		guard.Park = true
		_, err := runStep(t, &fakeLocker{enter: func(context.Context, int, lockcore.Request) error { return tc.err }}, guard, done)
		requireFailure(t, err, protocol.FailureParked, true)
		require.Equal(t, temporal.ApplicationErrorCategoryBenign, application(t, err).Category())
		details, parked := protocol.Parked(err)
		require.True(t, parked)
		tc.want.Attempt = 1
		require.Equal(t, tc.want, details, name)
		require.Equal(t, !tc.want.Unavailable, protocol.LockError(err) != nil)
	}
}
