package lockcore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// missedOn returns the losses that sagas have missed.
func missedOn(t *testing.T, l *lockcore.Steps, f lockcore.Filter) (all []lockcore.Loss) {
	t.Helper()
	for m, err := range l.Missed(t.Context(), f) {
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

func TestReleaseCommitted_HoldWasLost_IsReportedForADay(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		leave(t, l, enter(t, l, ofRun("one", "step"))...)
		elapse(2 * time.Hour)
		lost := time.Now().UTC()
		leave(t, l, enter(t, l, request("other", lockcore.Exclusive("r")))...)
		elapse(time.Minute)
		released := time.Now().UTC()
		commit := lockcore.Release{LockID: "w", Run: "one", Resources: []string{"q", "r"}, Order: lockcore.LastAttempt(1)}
		for range 2 { // it may be repeated
			missed, err := l.ReleaseCommitted(t.Context(), commit)
			require.NoError(t, err)
			require.Len(t, missed, 1)
			require.Equal(t, "r", missed[0].Resource)
			require.Equal(t, "other", missed[0].By)
			require.ErrorIs(t, &missed[0], lockcore.ErrLost)
		}
		want := []lockcore.Loss{{Resource: "r", LockID: "w", Run: "one", At: lost, By: "other", ReleasedAt: released}}
		for _, f := range []lockcore.Filter{{}, {Resource: "r"}, {LockID: "w"}, {LockIDPrefix: "w"}, {Prefix: "r"}} {
			require.Equal(t, want, missedOn(t, l, f))
		}
		for _, f := range []lockcore.Filter{{Resource: "q"}, {LockID: "other"}, {LockIDPrefix: "o"}} {
			require.Empty(t, missedOn(t, l, f))
		}
		commit.Order = lockcore.LastAttempt(2)
		missed, err := l.ReleaseCommitted(t.Context(), commit)
		require.NoError(t, err)
		require.Empty(t, missed, "another saga of the run has lost nothing")
		elapse(24 * time.Hour)
		require.Empty(t, missedOn(t, l, lockcore.Filter{}))
	})
}

func TestReleaseCommitted_Held_ReportsNothing(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		leave(t, l, enter(t, l, ofRun("one", "step"))...)
		missed, err := l.ReleaseCommitted(t.Context(), lockcore.Release{LockID: "w", Run: "one", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)})
		require.NoError(t, err)
		require.Empty(t, missed)
		enter(t, l, request("other", lockcore.Exclusive("r")))
	})
}

func TestReleaseCommitted_BadInput_IsRefused(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		for field, change := range map[string]func(*lockcore.Release){
			"Release.Run":        func(r *lockcore.Release) { r.Run = "" },
			"Release.FirstFence": func(r *lockcore.Release) { r.FirstFence = 7 },
			"Release.Order":      func(r *lockcore.Release) { r.Order = lockcore.Order{} },
			"Release.LockID":     func(r *lockcore.Release) { r.LockID = "" },
		} {
			wrong := lockcore.Release{LockID: "w", Run: "one", Resources: []string{"r"}, Order: lockcore.LastAttempt(1)}
			change(&wrong)
			_, err := l.ReleaseCommitted(t.Context(), wrong)
			requireInvalid(t, err, field)
		}
	})
}
