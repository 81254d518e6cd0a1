package activities_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestBar_Saga_RaisesItUpToSchedule(t *testing.T) {
	t.Parallel()
	f := &fakeLocker{}
	out, err := call(t, f, wire.ActivityBar, `{"resources":["a","b"],"saga":"2","schedule":7}`)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, out)
	require.Equal(t, []lockcore.Raise{{
		LockID: ownLockID, Run: "default-test-run-id", Saga: "2", Order: lockcore.LastAttempt(7), Resources: []string{"a", "b"},
	}}, f.bars)
}

func TestBar_PartsStillRun_FailsWithDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, partsStillRun)
}

func partsStillRun(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		700 * time.Millisecond: 700 * time.Millisecond, time.Hour: 2 * time.Second, lockcore.Forever: 2 * time.Second, time.Millisecond: 100 * time.Millisecond,
	} {
		f := &fakeLocker{err: &lockcore.BusyError{Resource: "a", Holders: []lockcore.Holder{{ExpiresIn: lockcore.Forever}, {ExpiresIn: left}}}}
		_, err := call(t, f, wire.ActivityBar, `{"resources":["a"],"saga":"2","schedule":7}`)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.Equal(t, wire.FailureBusy, app.Type())
		require.False(t, app.NonRetryable())
		require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category())
		require.Equal(t, want, app.NextRetryDelay())
	}
}

func TestBar_OwnLockID_IsRefused(t *testing.T) {
	t.Parallel()
	for _, workflow := range []bool{true, false} {
		f := &fakeLocker{}
		_, err := callFrom(t, f, workflow, wire.ActivityBar, `{"lockId":"mine","resources":["a"],"saga":"2","schedule":7}`)
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, wire.LockError(err), &invalid)
		require.Equal(t, "lockId", invalid.Field)
		require.Empty(t, f.bars)
	}
	_, err := callFrom(t, &fakeLocker{}, false, wire.ActivityBar, `{"resources":["a"],"saga":"2","schedule":7}`)
	require.ErrorIs(t, wire.LockError(err), lockcore.ErrInvalid, "an activity without a workflow has no lock ID to bar")
}
