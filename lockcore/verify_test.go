package lockcore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// verifying is a saga of the run "one" that has used r by its scheduling 1, and s by 2.
type verifying struct {
	*testing.T
	*lockcore.Steps
	verify lockcore.Verify
}

// verifies calls fn for such a saga, which holds both.
func verifies(t *testing.T, fn func(v *verifying)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { fn(newVerifying(t, lockcoretest.NewStore(time.Now))) })
}

func newVerifying(t *testing.T, s lockcore.Store) *verifying {
	t.Helper()
	v := &verifying{T: t, Steps: newLocker(t, s, lockcore.Config{TTL: time.Second, HoldTTL: time.Minute})}
	v.verify = lockcore.Verify{
		LockID: "w", Run: "one", Used: []lockcore.Use{{Resource: "r", Order: lockcore.LastAttempt(1)}, {Resource: "s", Order: lockcore.LastAttempt(2)}},
	}
	v.use("r", "one", 1)
	v.use("s", "one", 2)
	return v
}

func (v *verifying) use(resource, run string, schedule uint32, changes ...func(*lockcore.StepRequest)) {
	v.Helper()
	changes = append(changes, func(req *lockcore.StepRequest) {
		req.Resources, req.Order.Schedule = []lockcore.Resource{lockcore.Exclusive(resource)}, schedule
	})
	leases, err := v.TryEnter(v.Context(), ofRun(run, "step", changes...))
	require.NoError(v, err)
	require.NoError(v, v.Leave(v.Context(), leases...))
}

// other takes a resource, as another party, and leaves.
func (v *verifying) other(resource string) {
	v.Helper()
	leases, err := v.TryEnter(v.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other"}, Resources: []lockcore.Resource{lockcore.Exclusive(resource)}})
	require.NoError(v, err, "%s is not free", resource)
	require.NoError(v, v.Leave(v.Context(), leases...))
}

func (v *verifying) requireHeld(resources ...string) {
	v.Helper()
	for _, name := range resources {
		_, err := v.TryEnter(v.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "other"}, Resources: []lockcore.Resource{lockcore.Exclusive(name)}})
		require.ErrorIs(v, err, lockcore.ErrBusy)
	}
}

func (v *verifying) requireHolds() {
	v.Helper()
	require.NoError(v, v.Verify(v.Context(), v.verify))
}

func (v *verifying) requireLost() {
	v.Helper()
	require.ErrorIs(v, v.Verify(v.Context(), v.verify), lockcore.ErrLost)
}

func reacquire(req *lockcore.StepRequest) { req.Reacquire = true }

func TestVerify_Held_IsRenewedAndNotReleased(t *testing.T) {
	verifies(t, func(v *verifying) {
		for range 3 {
			elapse(time.Minute - time.Second)
			v.requireHolds()
		}
		v.requireHeld("r", "s")
		require.NoError(v, v.Release(v.Context(), lockcore.Release{LockID: "w", Run: "one", Resources: []string{"r", "s"}, Order: lockcore.LastAttempt(2)}))
		v.other("r")
		v.other("s")
	})
}

// The first call took effect, and its answer did not come.
func TestVerify_AnswerLost_IsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newFaultStore()
		v := newVerifying(t, db)
		cut := 0
		db.set(nil, times(1, func(context.Context, command) error {
			cut++
			return errCut
		}, of(kindSwap)))
		v.requireHolds()
		require.Equal(v, 1, cut)
		v.requireHeld("r", "s")
	})
}

func TestVerify_HoldEvicted_IsLostAndNothingIsReleased(t *testing.T) {
	verifies(t, func(v *verifying) {
		elapse(time.Minute)
		v.other("r")
		for range 2 {
			var lost *lockcore.LostError
			err := v.Verify(v.Context(), v.verify)
			require.ErrorAs(v, err, &lost)
			require.Equal(v, "r", lost.Resource)
			require.Equal(v, "other", lost.By)
			v.requireHeld("s")
		}
	})
}

// A step that completed although no hold was made by then ran without its lock.
func TestVerify_HoldNeverMade_IsLostUnlessInherited(t *testing.T) {
	verifies(t, func(v *verifying) {
		v.verify.Used[1].Resource = "never"
		v.requireLost()
		v.verify.Inherits = true // an earlier run may have released it
		v.requireHolds()
	})
}

func TestVerify_HoldBeganAfterTheUse_IsLost(t *testing.T) {
	verifies(t, func(v *verifying) {
		v.verify.Used[1].Order = lockcore.LastAttempt(1)
		v.requireLost()
		v.verify.Used[1].Order = lockcore.Order{} // before every request
		v.requireLost()
		v.requireHeld("s")
	})
}

// The hold was lost, and a later step acquired it again.
func TestVerify_HoldWasAcquiredAgain_IsLost(t *testing.T) {
	verifies(t, func(v *verifying) {
		elapse(time.Minute)
		v.other("r")
		v.use("r", "one", 2, reacquire)
		v.requireLost()
		v.requireHeld("r")
	})
}

func TestVerify_AnotherRunHolds_NeedsTakeOver(t *testing.T) {
	verifies(t, func(v *verifying) {
		v.verify.Run, v.verify.Inherits = "two", true
		var other *lockcore.OtherRunError
		require.ErrorAs(v, v.Verify(v.Context(), v.verify), &other)
		require.Equal(v, "one", other.Other)
		v.verify.TakeOver = other.Other
		v.requireHolds()
		v.requireHeld("r", "s")
	})
}

// Orders of different runs are not comparable: what a run has taken over is older than all that it used.
func TestVerify_TakenOverHold_IsOlderThanEveryUse(t *testing.T) {
	verifies(t, func(v *verifying) {
		v.verify.Run, v.verify.TakeOver, v.verify.Used[1].Order = "two", "one", lockcore.LastAttempt(1)
		v.requireHolds()
	})
}

// afterReset makes the saga that of a run that was made by a reset, and that began two minutes before now.
func (v *verifying) afterReset(run, other string) {
	v.verify.Run, v.verify.Inherits, v.verify.TakeOver, v.verify.LostSince = run, true, other, time.Now().Add(-2*time.Minute)
}

// The run before lost a hold which the next one has never had: that is a loss of the next one too.
func TestVerify_RunBeforeLostTheHold_IsLost(t *testing.T) {
	verifies(t, func(v *verifying) {
		elapse(time.Minute)
		v.other("r")
		v.afterReset("two", "one")
		v.requireLost()
		again := ofRun("two", "step", func(req *lockcore.StepRequest) { req.Order.Schedule, req.LostSince = 3, v.verify.LostSince })
		again.HeldSince = map[string]uint32{"r": 1}
		_, err := v.TryEnter(v.Context(), again)
		require.ErrorIs(v, err, lockcore.ErrLost)
		again.Resources = []lockcore.Resource{lockcore.Exclusive("never"), lockcore.Exclusive("r")} // r is used for the first time
		again.HeldSince = map[string]uint32{"never": 1}
		_, err = v.TryEnter(v.Context(), again)
		require.NoError(v, err)
	})
}

func TestVerify_RunBeforeLostTheHoldEarlier_DoesNotCount(t *testing.T) {
	verifies(t, func(v *verifying) {
		elapse(time.Minute)
		v.other("r")
		elapse(2*time.Minute + time.Second)
		v.afterReset("two", "one")
		v.requireHolds()
	})
}

func TestVerify_LostSinceIsNotSet_LossOfRunBeforeDoesNotCount(t *testing.T) {
	verifies(t, func(v *verifying) {
		elapse(time.Minute)
		v.other("r")
		v.afterReset("two", "one")
		v.verify.LostSince = time.Time{}
		v.requireHolds()
	})
}

// The first run was reset, and reset again: the last one does not know the run between, which had
// continued with the hold.
func TestVerify_RunBetweenLostTheHold_IsLost(t *testing.T) {
	verifies(t, func(v *verifying) {
		v.use("r", "two", 3, func(req *lockcore.StepRequest) { req.TakeOver = "one" })
		elapse(time.Minute)
		v.other("r")
		v.afterReset("three", "one")
		v.requireLost()
	})
}

// A run that uses a resource first after its reset has not lost what the run before has lost.
func TestVerify_FirstUseAfterALoss_HoldsUnlessUsedBefore(t *testing.T) {
	verifies(t, func(v *verifying) {
		elapse(time.Minute)
		v.other("r")
		v.afterReset("two", "")
		v.use("r", "two", 5)
		v.verify.Used = []lockcore.Use{{Resource: "r", Order: lockcore.LastAttempt(5)}}
		v.requireHolds()
		v.verify.Used[0].Order = lockcore.LastAttempt(4)
		v.requireLost()
	})
}

// A compensation of the run before has acquired the resource again, and the next run continues with its hold.
func TestVerify_RunBeforeHasRegainedTheHold_Holds(t *testing.T) {
	verifies(t, func(v *verifying) {
		elapse(time.Minute)
		v.other("r")
		v.use("r", "one", 2, reacquire)
		v.use("s", "one", 3, reacquire)
		v.afterReset("two", "one")
		v.requireHolds()
	})
}

func TestVerify_InvalidInput_IsRefused(t *testing.T) {
	verifies(t, func(v *verifying) {
		for field, wrong := range map[string]lockcore.Verify{
			"Verify.LockID": {Run: "one"}, "Verify.Run": {LockID: "w"}, "Verify.TakeOver": {LockID: "w", Run: "one", TakeOver: "\x00"},
			"Verify.Used[0].Resource": {LockID: "w", Run: "one", Used: []lockcore.Use{{}}},
		} {
			var invalid *lockcore.InvalidError
			require.ErrorAs(v, v.Verify(v.Context(), wrong), &invalid)
			require.Equal(v, field, invalid.Field)
		}
	})
}
