package janitor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestRound_Verdicts_ExtendOrRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"open", "closed", "missing"} {
			w.keeps(t, "ns/"+name, "r", name, time.Hour)
		}
		w.keeps(t, "ns/closed/step", "r", "closed too", lockcore.Forever)
		w.keeps(t, "other/closed", "r", "another namespace's", time.Hour)
		w.waits(t, "ns/closed", "r", "open")
		part := request("ns/closed", "r", "runs", 0)
		part.Keep, part.TTL = false, 2*time.Hour
		_, err := w.TryEnter(t.Context(), part)
		require.NoError(t, err)
		w.waits(t, "other/w", "r", "runs")
		elapse(31 * time.Minute)
		w.keeps(t, "ns/open", "r", "newer", time.Hour)
		w.keeps(t, "ns/unlabelled", "", "by hand", time.Hour)
		w.keeps(t, "ns/a/b/c", "r", "by hand too", time.Hour)
		w.is("open/r", answer{verdict: open})
		w.is("closed/r", answer{verdict: closed, why: "Terminated"})

		require.Equal(t, Result{
			Listed: 8, Asked: 3, Open: 1, Closed: 1, Unknown: 3, Extended: 1, Released: 3,
		}, w.round(t, w.janitor(t)))
		require.ElementsMatch(t, []string{"open/r", "closed/r", "missing/r"}, w.asked, "each run is asked about once")
		elapse(59 * time.Minute)
		for resource, want := range map[string][]string{
			"open": {"ns/open holding"}, "closed": nil, "closed too": nil, "missing": nil, "newer": {"ns/open holding"},
			"another namespace's": nil, "runs": {"ns/closed holding", "other/w waiting"},
		} {
			require.Equal(t, want, w.on(t, resource), resource)
		}
	})
}

func TestRound_TakenOverAfterListing_ChangesNothing(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]answer{"closed": {verdict: closed}, "open": {verdict: open}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.keeps(t, "ns/w", "one", "r", time.Minute)
				w.is("w/one", found)
				w.before = func() {
					req := request("ns/w", "two", "r", time.Hour)
					req.TakeOver = "one"
					_, err := w.TryEnter(t.Context(), req)
					require.NoError(t, err)
				}
				result := w.round(t, w.janitor(t))
				require.Zero(t, result.Errors)
				require.Zero(t, result.Extended)
				w.before = nil
				again := request("ns/w", "two", "r", time.Hour)
				again.Order.Attempt++
				_, err := w.TryEnter(t.Context(), again)
				require.NoError(t, err, "it still holds")
			})
		})
	}
}

func TestRound_Questions_ArePacedByExpiry(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var want []string
		w.keeps(t, "ns/forever", "r", "forever", lockcore.Forever)
		for i := 9; i > 0; i-- {
			name := fmt.Sprint("w", i)
			w.keeps(t, "ns/"+name, "r", name, time.Duration(i)*time.Hour)
			want = append([]string{name + "/r"}, want...)
		}
		w.round(t, w.janitor(t, func(o *Options) { o.RequestsPerSecond = 10 }))
		require.Equal(t, append(want, "forever/r"), w.asked)
		require.Equal(t, 900*time.Millisecond, w.at[9].Sub(w.at[0]).Round(time.Millisecond))
	})
}

func TestRound_QuestionFails_ChangesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeps(t, "ns/a", "r", "a", time.Minute)
		w.keeps(t, "ns/b", "r", "b", time.Minute)
		w.err = errors.New("no answer")
		j := w.janitor(t)
		require.Equal(t, Result{Listed: 2, Asked: 2, Failed: 2}, w.round(t, j))
		require.Equal(t, []string{"ns/a holding"}, w.on(t, "a"))
		w.err = nil
		w.is("a/r", answer{verdict: open})
		require.Equal(t, Result{Listed: 2, Asked: 2, Open: 1, Unknown: 1, Extended: 1}, w.round(t, j))
	})
}

// The run has only the wait of another step pending, so nothing waits for the request any longer. Kept holds and a newer request stay.
func TestRound_AbandonedWait_IsWithdrawn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeps(t, "ns/other", "r", "busy", lockcore.Forever)
		w.keeps(t, "ns/other", "r", "busy too", lockcore.Forever)
		w.keeps(t, "ns/w", "r", "kept", lockcore.Forever)
		w.waits(t, "ns/w", "r", "busy")
		w.waits(t, "ns/w", "r", "busy too")
		w.is("w/r", answer{verdict: open})
		j := w.janitor(t)
		require.Zero(t, w.round(t, j).Released)
		w.is("w/r", answer{verdict: open, settled: true, pending: []pendingActivity{{"lockstep-wait-7", "lockstep.Wait"}}})
		w.before = func() {
			w.before = nil
			again := request("ns/w", "r", "busy too", time.Hour)
			again.Order.Schedule++
			_, err := w.Enter(t.Context(), again)
			require.ErrorIs(t, err, lockcore.ErrBusy)
		}
		w.round(t, j)
		require.Equal(t, []string{"ns/other holding"}, w.on(t, "busy"))
		require.Equal(t, []string{"ns/other holding", "ns/w waiting"}, w.on(t, "busy too"))
		require.Equal(t, []string{"ns/w holding"}, w.on(t, "kept"))
	})
}

func TestRound_ContextEndsOrRefused_Stops(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 20 {
			w.keeps(t, fmt.Sprint("ns/", i), "r", fmt.Sprint(i), time.Hour)
		}
		j := w.janitor(t, func(o *Options) { o.RequestsPerSecond = 1 })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := j.Round(ctx)
		require.Error(t, err)
		require.Less(t, len(w.asked), 8)
		w.asked, w.err = nil, &RefusedError{Namespace: "name", Err: errors.New("no")}
		_, err = j.Round(t.Context())
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Len(t, w.asked, 1)
	})
}

// Entries of the step's own lock ID are released, and none of its workflow's.
func TestRound_StepEnded_ReleasesItsEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		found answer
		ends  bool
	}{
		"a task is outstanding":        {answer{verdict: open}, false},
		"it is pending":                {answer{verdict: open, settled: true, pending: []pendingActivity{{"7", "Debit"}}}, false},
		"its wait is pending":          {answer{verdict: open, settled: true, pending: []pendingActivity{{"lockstep-wait-1", "lockstep.Wait"}}}, false},
		"another wait is pending":      {answer{verdict: open, settled: true, pending: []pendingActivity{{"lockstep-wait-9", "lockstep.Wait"}}}, true},
		"another activity is pending":  {answer{verdict: open, settled: true, pending: []pendingActivity{{"7", "Credit"}}}, true},
		"nothing is pending":           {answer{verdict: open, settled: true}, true},
		"its run was reset":            {answer{verdict: inherited}, true},
		"the run is not known":         {answer{}, false},
		"its activity has an odd name": {answer{verdict: open, settled: true, pending: []pendingActivity{{"3", "3"}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				step := wire.Run{Namespace: "ns", WorkflowID: "w"}.StepLockID("3/Debit")
				w.keeps(t, "ns/other", "r", "busy", lockcore.Forever)
				w.keeps(t, step, "r", "taken", lockcore.Forever)
				w.keeps(t, "ns/w", "r", "saga's", lockcore.Forever)
				w.waits(t, step, "r", "busy")
				w.is("w/r", c.found)
				w.round(t, w.janitor(t))
				require.Equal(t, !c.ends, len(w.on(t, "taken")) == 1)
				require.Equal(t, !c.ends, len(w.on(t, "busy")) == 2)
				require.Len(t, w.on(t, "saga's"), 1)
			})
		})
	}
}

// The lock ID of a rule names the activity, whose ID and type may contain the separators of lock IDs.
func TestRound_RuleActivityEnded_WithdrawsItsWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ own, other pendingActivity }{
		{pendingActivity{"17", "Debit"}, pendingActivity{"18", "Debit"}},
		{pendingActivity{"me@shop", "Debit"}, pendingActivity{"me", "Debit"}},
		{pendingActivity{"a/b", "shop/Debit"}, pendingActivity{"a", "b/shop/Debit"}},
	} {
		t.Run(c.own.id, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				step := wire.RuleStep(c.own.id, c.own.activityType, time.Unix(1700000000, 0))
				w.keeps(t, "ns/other", "r", "busy", lockcore.Forever)
				w.waits(t, wire.Run{Namespace: "ns", WorkflowID: "w"}.StepLockID(step), "r", "busy")
				j := w.janitor(t)
				w.is("w/r", answer{verdict: open, settled: true, pending: []pendingActivity{c.own, c.other}})
				require.Zero(t, w.round(t, j).Released)
				w.is("w/r", answer{verdict: open, settled: true, pending: []pendingActivity{c.other}})
				require.Equal(t, 1, w.round(t, j).Released)
			})
		})
	}
}

// Its workers may be away for any time. The wait of a run with an heir expires.
func TestRun_OpenRun_KeepsItsWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeps(t, "ns/other", "r", "busy", lockcore.Forever)
		w.waits(t, "ns/w", "r", "busy")
		w.waits(t, "ns/reset", "r", "busy")
		w.is("w/r", answer{verdict: open, settled: true, pending: []pendingActivity{{"7", "Debit"}}})
		w.is("reset/r", answer{verdict: inherited})
		defer run(t, w.janitor(t))()
		elapse(25 * time.Hour)
		require.Equal(t, []string{"ns/other holding", "ns/w waiting"}, w.on(t, "busy"))
	})
}

func TestRun_ContinuedAsNew_HoldsAreInherited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeps(t, "ns/w", "r", "handed over", time.Hour)
		w.is("w/r", answer{verdict: inherited})
		defer run(t, w.janitor(t))()
		elapse(3 * time.Hour)
		require.Equal(t, []string{"ns/w holding"}, w.on(t, "handed over"))
	})
}

// A run lost its lock to a forced release, and is terminated while its undo waits. The janitor's release must not erase the
// evidence: a run that a reset makes of it must find the loss.
func TestRound_ClosedRun_KeepsEvidenceOfLoss(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeps(t, "ns/w", "one", "r", time.Hour)
		var first int64
		for s, err := range w.Status(t.Context(), lockcore.Filter{Resource: "r"}) {
			require.NoError(t, err)
			first = s.FirstFence
		}
		require.NoError(t, w.Release(t.Context(), lockcore.Release{
			LockID: "ns/w", Resources: []string{"r"}, FirstFence: first, Force: true, Now: true, Reason: "by hand",
		}))
		w.keeps(t, "ns/other", "o", "r", time.Hour)
		undo := request("ns/w", "one", "r", time.Hour)
		undo.Reacquire, undo.Order.Schedule = true, undo.Order.Schedule+1
		_, err := w.Enter(t.Context(), undo)
		require.ErrorIs(t, err, lockcore.ErrBusy)
		w.is("w/one", answer{verdict: closed, why: "Terminated"})
		w.is("other/o", answer{verdict: open})
		require.Equal(t, 1, w.round(t, w.janitor(t)).Released, "its wait")
		err = w.Verify(t.Context(), lockcore.Verify{
			LockID: "ns/w", Run: "two", Inherits: true, LostSince: time.Unix(0, 0), Used: []lockcore.Use{{Resource: "r", Order: lockcore.LastAttempt(1)}},
		})
		require.ErrorIs(t, err, lockcore.ErrLost)
	})
}
