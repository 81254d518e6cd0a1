package lockcore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// raising runs fn with the Locker of a workflow "w" and the bar of its saga "1" up to schedule 2.
func raising(t *testing.T, fn func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise)) {
	t.Helper()
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		fn(t, l, lockcore.Raise{LockID: "w", Run: "one", Saga: "1", Order: lockcore.LastAttempt(2), Resources: []string{"r"}})
	})
}

// ofSaga makes a request one of a saga, with a schedule and attempt.
func ofSaga(saga string, schedule, attempt uint32) func(*lockcore.StepRequest) {
	return func(req *lockcore.StepRequest) {
		req.Saga, req.Order = saga, lockcore.Order{Schedule: schedule, Attempt: attempt}
	}
}

// inStepScope gives a request a lock ID of its own within the workflow's.
func inStepScope(req *lockcore.StepRequest) {
	req.LockID, req.Within, req.Keep = "w/step", "w", false
}

func TestRaise_RunningPart_IsCutOffAndWaitedFor(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		step, err := l.Acquire(t.Context(), ofRun("one", "step", ofSaga("1", 2, 1)))
		require.NoError(t, err)
		for range 2 { // it may be repeated
			busy := errorAs[*lockcore.BusyError](t, l.Raise(t.Context(), bar))
			require.Equal(t, "r", busy.Resource)
			require.Len(t, busy.Holders, 1)
			require.Equal(t, lockcore.StateDraining, busy.Holders[0].State)
			require.Equal(t, "step", busy.Holders[0].Part)
			require.Equal(t, busy.RetryIn, busy.Holders[0].ExpiresIn)
			require.Positive(t, busy.RetryIn)
			require.LessOrEqual(t, busy.RetryIn, 30*time.Second)
		}
		<-step.Context().Done()
		require.ErrorIs(t, step.Lost(), lockcore.ErrLost, "the step is told")
		require.ErrorIs(t, l.Raise(t.Context(), bar), lockcore.ErrBusy, "the step has not left")
		require.NoError(t, l.Leave(t.Context(), step.Leases()...))
		for range 2 {
			require.NoError(t, l.Raise(t.Context(), bar))
		}
		_, err = l.TryEnter(t.Context(), ofRun("one", "undo", ofSaga("1", 3, 1)))
		require.NoError(t, err, "the compensation has a greater schedule, and its hold is kept")
	})
}

func TestRaise_PartNeverLeaves_EndsWithItsTTL(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		bar.Resources = []string{"q", "r", "s"}
		enter(t, l, ofRun("one", "long", ofSaga("1", 1, 1)))
		short := ofRun("one", "short", ofSaga("1", 2, 1))
		short.Resources, short.TTL = []lockcore.Resource{lockcore.Exclusive("s")}, 10*time.Second
		enter(t, l, short)
		for _, resource := range []string{"s", "r"} { // of several resources, the resource whose hold ends first is reported
			busy := errorAs[*lockcore.BusyError](t, l.Raise(t.Context(), bar))
			require.Equal(t, resource, busy.Resource)
			elapse(busy.RetryIn)
		}
		require.NoError(t, l.Raise(t.Context(), bar))
	})
}

func TestRaise_LaterAttemptOfAnEarlierOrder_IsRefused(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		require.NoError(t, l.Raise(t.Context(), bar))
		for _, barred := range []lockcore.StepRequest{ofRun("one", "step", ofSaga("1", 2, 9)), ofRun("one", "another", ofSaga("1", 1, 1)), ofRun("one", "", ofSaga("1", 2, 2), inStepScope)} {
			var superseded *lockcore.SupersededError
			_, err := l.Enter(t.Context(), barred)
			require.ErrorAs(t, err, &superseded)
			require.Contains(t, superseded.Reason, "compensation")
			require.Equal(t, bar.Order, superseded.By)
		}
		for _, free := range []lockcore.StepRequest{
			ofRun("one", "step of another saga", ofSaga("2", 1, 1)), ofRun("one", "step of no saga", ofSaga("", 1, 1)), ofRun("one", "step", ofSaga("1", 3, 1)),
		} {
			leases, err := l.Enter(t.Context(), free)
			require.NoError(t, err, free.Part)
			require.NoError(t, l.Leave(t.Context(), leases...))
		}
	})
}

func TestRaise_AnotherRunHolds_NeedsTakeOver(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		kept := enter(t, l, ofRun("zero", "step"))
		require.NoError(t, l.Leave(t.Context(), kept...))
		other := errorAs[*lockcore.OtherRunError](t, l.Raise(t.Context(), bar))
		require.Equal(t, lockcore.OtherRunError{Resource: "r", LockID: "w", Run: "one", Other: "zero"}, *other)
		bar.TakeOver = other.Other
		require.NoError(t, l.Raise(t.Context(), bar))
		_, err := l.TryEnter(t.Context(), ofRun("one", "step", ofSaga("1", 2, 1)))
		require.ErrorIs(t, err, lockcore.ErrSuperseded)
		_, err = l.TryEnter(t.Context(), ofRun("one", "undo", ofSaga("1", 3, 1), func(req *lockcore.StepRequest) { req.HeldSince = map[string]uint32{"r": 9} }))
		require.NoError(t, err, "what the run before kept is the run's now")
	})
}

func TestRaise_LostAnswer_IsRepeated(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		bar := lockcore.Raise{LockID: "w", Run: "one", Saga: "1", Order: lockcore.LastAttempt(2), Resources: []string{"r"}}
		db.set(nil, cutting(of(kindSwap)))
		unknown := errorAs[*lockcore.UnknownOutcomeError](t, l.Raise(t.Context(), bar))
		require.Equal(t, "raise", unknown.Op)
		require.Equal(t, "r", unknown.Resource)
		db.set(nil, nil)
		require.NoError(t, l.Raise(t.Context(), bar))
		require.Len(t, db.Document("r").Bars, 1)
	})
}

func TestRaise_BadInput_IsRefused(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		for field, change := range map[string]func(*lockcore.Raise){
			"Raise.LockID":         func(r *lockcore.Raise) { r.LockID = "" },
			"Raise.Run":            func(r *lockcore.Raise) { r.Run = "" },
			"Raise.TakeOver":       func(r *lockcore.Raise) { r.TakeOver = r.Run },
			"Raise.Saga":           func(r *lockcore.Raise) { r.Saga = "" },
			"Raise.Order.Schedule": func(r *lockcore.Raise) { r.Order = lockcore.LastAttempt(0) },
			"Raise.Resources[1]":   func(r *lockcore.Raise) { r.Resources = []string{"r", ""} },
			"len(Raise.Resources)": func(r *lockcore.Raise) { r.Resources = nil },
		} {
			wrong := bar
			change(&wrong)
			requireInvalid(t, l.Raise(t.Context(), wrong), field)
		}
	})
}

func TestRaise_PartWithoutEnd_EndsNevertheless(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		enter(t, l, ofRun("one", "step", ofSaga("1", 2, 1), func(req *lockcore.StepRequest) { req.TTL, req.HoldTTL = lockcore.Forever, lockcore.Forever }))
		busy := errorAs[*lockcore.BusyError](t, l.Raise(t.Context(), bar))
		require.Equal(t, 30*time.Second, busy.RetryIn)
		elapse(busy.RetryIn)
		require.NoError(t, l.Raise(t.Context(), bar))
	})
}

func TestRaise_ManyResources_AreAllBarred(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		bar.Resources = nil
		for i := range 150 {
			bar.Resources = append(bar.Resources, fmt.Sprintf("r%03d", i))
		}
		for range 2 { // repeated, it changes nothing
			require.NoError(t, l.Raise(t.Context(), bar))
		}
		for _, name := range bar.Resources {
			_, err := l.TryEnter(t.Context(), ofRun("one", "step", ofSaga("1", 2, 1), func(req *lockcore.StepRequest) { req.Resources[0].Name = name }))
			require.ErrorIs(t, err, lockcore.ErrSuperseded)
		}
	})
}

// What one resource answers does not keep the bar from the others, and a part that still runs does not hide it.
func TestRaise_AnotherRunHoldsOne_BarsTheOther(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		enter(t, l, ofRun("zero", "step"))
		onS := func(req *lockcore.StepRequest) { req.Resources[0].Name = "s" }
		enter(t, l, ofRun("one", "step", ofSaga("1", 2, 1), onS))
		bar.Resources = []string{"s", "r"}
		err := l.Raise(t.Context(), bar)
		require.ErrorIs(t, err, lockcore.ErrOtherRun)
		require.NotErrorIs(t, err, lockcore.ErrBusy)
		_, err = l.TryEnter(t.Context(), ofRun("one", "late", ofSaga("1", 1, 1), onS))
		require.ErrorIs(t, err, lockcore.ErrSuperseded)
	})
}

func TestRaise_SagaInside_IsBarred(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		step := enter(t, l, ofRun("one", "step", ofSaga("1/4", 1, 1)))
		other := enter(t, l, ofRun("one", "other", ofSaga("14", 1, 1)))
		require.ErrorIs(t, l.Raise(t.Context(), bar), lockcore.ErrBusy)
		_, err := l.Renew(t.Context(), other...)
		require.NoError(t, err, "it is in another saga")
		leave(t, l, step...)
		require.NoError(t, l.Raise(t.Context(), bar))
		_, err = l.TryEnter(t.Context(), ofRun("one", "step", ofSaga("1/4", 2, 1)))
		require.ErrorIs(t, err, lockcore.ErrSuperseded)
	})
}

// A delayed step must be refused even after its saga has lost the hold in which its bar was.
func TestRaise_HoldIsEvicted_BarRemains(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		leave(t, l, enter(t, l, ofRun("one", "step", ofSaga("1", 1, 1)))...)
		require.NoError(t, l.Raise(t.Context(), bar))
		elapse(2 * time.Hour)
		leave(t, l, enter(t, l, request("other", lockcore.Exclusive("r")))...)
		_, err := l.TryEnter(t.Context(), ofRun("one", "step", ofSaga("1", 1, 2), func(req *lockcore.StepRequest) { req.Reacquire = true }))
		require.ErrorIs(t, err, lockcore.ErrSuperseded)
	})
}

func TestRaise_Repeated_DrawsNoFence(t *testing.T) {
	raising(t, func(t *testing.T, l *lockcore.Steps, bar lockcore.Raise) {
		step := enter(t, l, ofRun("one", "step", ofSaga("1", 1, 1)))
		leave(t, l, step...)
		var fences []int64
		for schedule := uint32(3); schedule < 6; schedule++ {
			require.NoError(t, l.Raise(t.Context(), bar))
			undo := enter(t, l, ofRun("one", "undo", ofSaga("1", schedule, 1)))
			require.Equal(t, undo[0].LeastFence, undo[0].Fence)
			fences = append(fences, undo[0].Fence)
			leave(t, l, undo...)
		}
		require.Greater(t, fences[0], step[0].Fence)
		require.Equal(t, []int64{fences[0], fences[0], fences[0]}, fences)
	})
}
